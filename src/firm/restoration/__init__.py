"""Pictures in, pictures out: what surrounds `firm.restore` when the measurement is a file."""

from firm.restoration import calibration as calibration
from firm.restoration.blur_estimate import estimate_blur as estimate_blur
from firm.restoration.degraded import picture_problem as picture_problem
from firm.restoration.measurement import measured_problem as measured_problem
from firm.restoration.noise import estimate_noise as estimate_noise
from firm.restoration.problem import Problem as Problem
from firm.restoration.problem import ProblemError as ProblemError
from firm.restoration.reconstructor import as_reconstructor as as_reconstructor
from firm.restoration.simulated import simulated_problem as simulated_problem
