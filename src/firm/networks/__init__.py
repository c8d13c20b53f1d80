"""Networks that a saved file builds by name: the paper's U-Net and ours, the baselines', the MLP of the toy problem."""

from firm.networks._build import NETWORKS as NETWORKS
from firm.networks._build import build as build
from firm.networks.denoisers import DRUNet as DRUNet
from firm.networks.denoisers import GradientResStep as GradientResStep
from firm.networks.denoisers import GradientStep as GradientStep
from firm.networks.denoisers import Step as Step
from firm.networks.denoisers import denoise as denoise
from firm.networks.estimator import EXTRA as EXTRA
from firm.networks.estimator import MLP as MLP
from firm.networks.estimator import Estimator as Estimator
from firm.networks.estimator import OneImage as OneImage
from firm.networks.ista_net import ISTANet as ISTANet
from firm.networks.res_unet import PriorResUNet as PriorResUNet
from firm.networks.res_unet import ResUNet as ResUNet
from firm.networks.unet import PRESETS as PRESETS
from firm.networks.unet import PriorUNet as PriorUNet
from firm.networks.unet import UNet as UNet
