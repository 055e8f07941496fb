"""``python -m halfbyte`` is the command ``halfbyte``."""

import sys

from halfbyte.cli import main

sys.exit(main())
