"""What people write is checked where it comes in."""

import pytest

from firm._util.checks import require_seed


@pytest.mark.parametrize("seed", [True, -1, 2**32, 1.5, "7", None, 10**40])
def test_what_is_no_seed(seed):
    with pytest.raises(ValueError, match=r"the seed must be a whole number from 0 to 2\^32 - 1") as caught:
        require_seed(seed)
    assert len(str(caught.value)) < 200
