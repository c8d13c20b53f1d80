"""The same numbers sooner: bfloat16, CUDA graphs, compiled blocks."""

from firm.acceleration._fast import fast as fast
from firm.acceleration._fast import fast_network as fast_network
from firm.acceleration.tiling import tiled as tiled
