"""The methods that the paper compares with, one per file: functions of a network, an operator and measurements."""

from firm.baselines._common import as_denoiser as as_denoiser
from firm.baselines._d_flow import d_flow as d_flow
from firm.baselines._diffpir import diffpir as diffpir
from firm.baselines._flow_priors import flow_priors as flow_priors
from firm.baselines._flower import flower as flower
from firm.baselines._hio import hio as hio
from firm.baselines._i2sb import i2sb as i2sb
from firm.baselines._ot_ode import ot_ode as ot_ode
from firm.baselines._pnp_flow import pnp_flow as pnp_flow
from firm.baselines._pnp_gs import pnp_gs as pnp_gs
from firm.baselines._pnp_hqs import pnp_hqs as pnp_hqs
