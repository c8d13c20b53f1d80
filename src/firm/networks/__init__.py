"""Networks that a saved file builds by name: the paper's U-Net and ours, the baselines', the MLP of the toy problem."""

from torch import nn

from firm.networks.drunet import DRUNet as DRUNet
from firm.networks.estimator import EXTRA as EXTRA
from firm.networks.estimator import Estimator as Estimator
from firm.networks.gradient_step import GradientResStep as GradientResStep
from firm.networks.gradient_step import GradientStep as GradientStep
from firm.networks.gradient_step import Step as Step
from firm.networks.ista_net import ISTANet as ISTANet
from firm.networks.mlp import MLP as MLP
from firm.networks.res_unet import PriorResUNet as PriorResUNet
from firm.networks.res_unet import ResUNet as ResUNet
from firm.networks.unet import PRESETS as PRESETS
from firm.networks.unet import PriorUNet as PriorUNet
from firm.networks.unet import UNet as UNet

KINDS = (UNet, ResUNet, PriorUNet, PriorResUNet, GradientStep, GradientResStep, DRUNet, ISTANet, MLP)
NETWORKS: dict[str, type[nn.Module]] = {kind.__name__: kind for kind in KINDS}
