"""Noise models: the likelihood p(y | A x), drawing from it, and the data-consistency step that it asks for."""

from firm.noise.attenuation import Attenuation as Attenuation
from firm.noise.attenuation import line_integrals as line_integrals
from firm.noise.base import Noise as Noise
from firm.noise.gaussian import Gaussian as Gaussian
from firm.noise.poisson import Poisson as Poisson
from firm.noise.poisson_gaussian import PoissonGaussian as PoissonGaussian
