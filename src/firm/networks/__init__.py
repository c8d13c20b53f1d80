<<<<<<< HEAD
"""Networks that `firm.load` builds by name: the paper's U-Net, the same as a prior, denoisers, the MLP of the toy."""

from firm.networks.drunet import DRUNet as DRUNet
from firm.networks.gradient_step import GradientStep as GradientStep
=======
"""Networks built by name when loaded: the paper's U-Net, the same as a prior, ISTA-Net+, the toy problem's MLP."""

from firm.networks.ista_net import ISTANet as ISTANet
>>>>>>> ista
from firm.networks.mlp import MLP as MLP
from firm.networks.unet import PRESETS as PRESETS
from firm.networks.unet import PriorUNet as PriorUNet
from firm.networks.unet import UNet as UNet

<<<<<<< HEAD
NETWORKS = {"UNet": UNet, "PriorUNet": PriorUNet, "GradientStep": GradientStep, "DRUNet": DRUNet, "MLP": MLP}
=======
NETWORKS = {"UNet": UNet, "PriorUNet": PriorUNet, "ISTANet": ISTANet, "MLP": MLP}
>>>>>>> ista
