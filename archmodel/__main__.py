"""`python -m archmodel`."""

import gc
import sys

gc.disable()  # a process that lives for seconds: looking for cycles would take a tenth of them

from archmodel.cli import main  # noqa: E402

sys.exit(main())
