"""Pictures in, pictures out: what surrounds `firm.restore` when the measurement is a file."""

from firm.restoration import calibration as calibration
from firm.restoration.estimates import estimate_blur as estimate_blur
from firm.restoration.estimates import estimate_noise as estimate_noise
from firm.restoration.problem import Problem as Problem
from firm.restoration.problem import ProblemError as ProblemError
from firm.restoration.reconstructor import as_reconstructor as as_reconstructor
