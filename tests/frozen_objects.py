"""Imported last by the server of `forks`: its forks do not look for garbage in what it imported.

They would write to each page that holds an object, and so copy it.
"""

import gc

gc.freeze()
