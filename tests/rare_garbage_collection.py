"""Importing this makes Python look for garbage seldom.

By itself it looks after every 700 new objects, and through all objects whenever a quarter of them
is new. Tracing graphs makes millions that stay: the search took 5 % of the time of all tests.
"""

import gc

# New objects; of the two elder generations, collections of the next younger one.
gc.set_threshold(50_000, 20, 20)
