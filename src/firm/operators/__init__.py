"""Forward operators A, their closed-form data-consistency steps, masks and kernels, and checks for your own."""

from firm.operators.base import LinearOperator as LinearOperator
from firm.operators.base import Operator as Operator
from firm.operators.base import data_consistency as data_consistency
from firm.operators.blur import Blur as Blur
from firm.operators.complex import as_real as as_real
from firm.operators.complex import to_complex as to_complex
from firm.operators.complex import to_real as to_real
from firm.operators.compose import Compose as Compose
from firm.operators.compose import Stack as Stack
from firm.operators.downsample import Downsample as Downsample
from firm.operators.fourier import Fourier as Fourier
from firm.operators.functions import from_functions as from_functions
from firm.operators.identity import Identity as Identity
from firm.operators.mask import Mask as Mask
from firm.operators.patterns import box_mask as box_mask
from firm.operators.patterns import cartesian_mask as cartesian_mask
from firm.operators.patterns import gaussian_kernel as gaussian_kernel
from firm.operators.patterns import motion_kernel as motion_kernel
from firm.operators.patterns import motion_kernels as motion_kernels
from firm.operators.patterns import random_mask as random_mask
from firm.operators.patterns import resize_kernel as resize_kernel
from firm.operators.patterns import stroke_mask as stroke_mask
from firm.operators.subsample import Subsample as Subsample
from firm.operators.testing import dot_test as dot_test
from firm.operators.testing import prox_test as prox_test
