"""What the reference's scripts have in common: absl's flags, and how errors are shown."""

import os
import sys
from collections.abc import Callable

from absl import app

from object_detection.cli.main import check_text, describe_user_error, exit_status, is_users_error
from object_detection.errors import UserError
from object_detection.system import signals


def check_flags_only(argv: list[str]) -> None:
    """Raises app.UsageError if there are arguments other than the program's name and flags."""
    if len(argv) > 1:
        raise app.UsageError(f'Expected flags only. Received: {" ".join(argv[1:])}.')


def run(define_flags: Callable[[], None], main: Callable[[list[str]], int | None]) -> None:
    """Parses the command line and runs `main`; users' errors become one line."""
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    define_flags()
    try:
        check_text(sys.argv[1:])
        with signals.unwinding():
            app.run(main)
    except (UserError, OSError) as error:
        if not is_users_error(error):
            raise
        print(f'Error: {describe_user_error(error)}', file=sys.stderr)
        sys.exit(exit_status(error))
