"""Pictures from files: CelebA, AFHQ, any folder; one at a time, through a DataLoader, or resident as one array."""

from firm.data.afhq import afhq_files as afhq_files
from firm.data.celeba import celeba_files as celeba_files
from firm.data.folder import Pictures as Pictures
from firm.data.folder import folder_files as folder_files
from firm.data.named import named_files as named_files
from firm.data.picture import PictureError as PictureError
from firm.data.picture import read_picture as read_picture
from firm.data.portrait import portrait as portrait
from firm.data.resident import resident as resident
