"""Images from pictures and arrays: CelebA, AFHQ, any folder, stacks; in memory, or mapped from a file."""

from firm.data.array_file import ArrayError as ArrayError
from firm.data.array_file import array_files as array_files
from firm.data.crops import crop_at as crop_at
from firm.data.crops import crop_scaled as crop_scaled
from firm.data.crops import gather_crops as gather_crops
from firm.data.images import Images as Images
from firm.data.images import Prefetcher as Prefetcher
from firm.data.load import load_images as load_images
from firm.data.load import read_image as read_image
from firm.data.load import resident as resident
from firm.data.opening import PictureError as PictureError
from firm.data.picture import read_picture as read_picture
from firm.data.picture import to_float as to_float
from firm.data.sets import afhq_files as afhq_files
from firm.data.sets import cat as cat
from firm.data.sets import celeba_files as celeba_files
from firm.data.sets import folder_files as folder_files
from firm.data.sets import named_files as named_files
from firm.data.sets import portrait as portrait
