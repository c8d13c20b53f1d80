"""FIRM: flow-based imaging via regularized minimization. Restores images from y = A x + noise in a few steps."""

from firm import operators as operators
from firm.estimator import UNet as UNet
from firm.fast import fast as fast
from firm.flow import TimeBalance as TimeBalance
from firm.flow import interpolate as interpolate
from firm.flow import omega as omega
from firm.flow import stratified_times as stratified_times
from firm.flow import tau as tau
from firm.flow import velocity_loss as velocity_loss
from firm.model import Firm as Firm
from firm.model import Restoration as Restoration
from firm.model import Solver as Solver
from firm.model import bundled as bundled
from firm.model import load as load
from firm.model import restore as restore
from firm.operators import data_consistency as data_consistency
from firm.posterior_mean import flow_only as flow_only
from firm.posterior_mean import posterior_mean as posterior_mean
from firm.restoration.tiling import tiled as tiled
from firm.sampling import sample as sample
from firm.tasks import Task as Task

__version__ = "0.1.0"
