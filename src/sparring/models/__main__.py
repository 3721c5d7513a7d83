"""`python -m sparring.models NAME` builds a development model and prints its folder.

The control plane starts it as a separate process, because building a model imports torch.
"""

from __future__ import annotations

import sys

from sparring.contracts.errors import SparringError
from sparring.models.cache import development_model


def main() -> int:
    """Build the model and return the exit code."""
    try:
        print(development_model(sys.argv[1]))
    except SparringError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
