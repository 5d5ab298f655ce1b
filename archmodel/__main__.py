"""`python -m archmodel`."""

import sys

from archmodel.cli import main

sys.exit(main())
