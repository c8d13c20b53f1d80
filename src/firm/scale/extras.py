"""Where `extra` was before other rooms needed it; see `firm._util.extras`."""

from firm._util.extras import extra as extra
