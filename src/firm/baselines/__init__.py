"""The methods that the paper compares with, one a file: plain functions of a network, an operator and measurements."""

from firm.baselines._d_flow import d_flow as d_flow
from firm.baselines._denoiser import as_denoiser as as_denoiser
from firm.baselines._flow_priors import flow_priors as flow_priors
from firm.baselines._flower import flower as flower
from firm.baselines._pnp_flow import pnp_flow as pnp_flow
