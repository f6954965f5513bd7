"""Finds pictures that look almost the same, by their hashes (`image_files.picture_hash`)."""

import numpy as np

# Of most changes, such as another size, compression or brightness, a hash has up to so many bits
# changed; those of different photos differed in 12 to 14 and more.
MAX_DISTANCE = 8
# Pairs that are compared at a time.
_MAX_PAIRS = 1 << 22


def nearest(
    codes: np.ndarray, known: np.ndarray | None = None, max_distance: int = MAX_DISTANCE
) -> tuple[np.ndarray, np.ndarray]:
    """Finds a similar picture for each.

    Codes that differ in at most k bits have one of k + 1 parts of their bits in common. Only those
    are compared, so that a hundred thousand pictures take seconds.

    Args:
      codes: uint64 [n], hashes.
      known: uint64 [m], in which is searched; None searches the earlier ones of `codes`.
      max_distance: k, the greatest number of bits in which similar ones differ.

    Returns:
      int64 [n], an index of `known`, or -1 where there is none; and the numbers of bits, int64 [n].
    """
    first = np.zeros(0, np.uint64) if known is None else known
    rows = np.concatenate([first, codes])
    # Each row is compared with those before its limit.
    limits = np.arange(len(rows))
    if known is not None:
        limits = np.where(limits < len(known), 0, len(known))
    bits = np.unpackbits(rows.astype('>u8').view(np.uint8).reshape(-1, 8), axis=1)
    # The product of two rows of these is the number of equal bits less that of the others.
    signs = 2 * bits.astype(np.float32) - 1
    partners, products = np.full(len(rows), -1), np.full(len(rows), 62.0 - 2 * max_distance)
    for part in np.array_split(bits, max_distance + 1, axis=1):
        keys = part @ (1 << np.arange(part.shape[1]))
        order = np.argsort(keys, kind='stable')
        for group in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
            for some in np.array_split(group, len(group) ** 2 // _MAX_PAIRS + 1):
                some = some[(products[some] < 64) & (limits[some] > 0)]
                if not len(some):
                    continue
                found = signs[some] @ signs[group].T
                found[group >= limits[some, np.newaxis]] = -65
                best = found.argmax(axis=1)
                found = found[np.arange(len(some)), best]
                is_nearer = found > products[some]
                products[some[is_nearer]] = found[is_nearer]
                partners[some[is_nearer]] = group[best[is_nearer]]
    distances = ((64 - products) / 2).astype(np.int64)
    return partners[len(first) :], distances[len(first) :]
