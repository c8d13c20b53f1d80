"""The methods that the paper compares with: functions of a network, an operator and measurements."""

from firm.baselines._along_the_flow import flow_priors as flow_priors
from firm.baselines._along_the_flow import flower as flower
from firm.baselines._along_the_flow import ot_ode as ot_ode
from firm.baselines._common import as_denoiser as as_denoiser
from firm.baselines._d_flow import d_flow as d_flow
from firm.baselines._i2sb import i2sb as i2sb
from firm.baselines._plug_and_play import diffpir as diffpir
from firm.baselines._plug_and_play import pnp_flow as pnp_flow
from firm.baselines._plug_and_play import pnp_gs as pnp_gs
from firm.baselines._plug_and_play import pnp_hqs as pnp_hqs
