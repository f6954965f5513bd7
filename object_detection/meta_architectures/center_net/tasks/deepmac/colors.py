"""Colour spaces."""

import tensorflow as tf

# sRGB (IEC 61966-2-1): from linear red, green and blue to X, Y, Z, which it divides by those of its
# white, D65.
_TO_XYZ = (
    (0.412453, 0.357580, 0.180423),
    (0.212671, 0.715160, 0.072169),
    (0.019334, 0.119193, 0.950227),
)
_WHITE = (0.95047, 1.0, 1.08883)
# Where the curves of sRGB and of CIE 1976 begin to be lines.
_LINEAR_SRGB = 0.04045
_LINEAR_LAB = 0.008856


def srgb_to_lab(images: tf.Tensor) -> tf.Tensor:
    """Converts sRGB to CIE 1976 L*a*b* with the white D65.

    Distances in it are about those that people see.

    Args:
      images: float32 [..., 3], red, green and blue, 0..1.

    Returns:
      float32 [..., 3]: L* in 0..100, a* and b* about -128..127.
    """
    # Roots of numbers that are not positive have no gradient.
    curve = tf.pow((tf.maximum(images, _LINEAR_SRGB) + 0.055) / 1.055, 2.4)
    linear = tf.where(images > _LINEAR_SRGB, curve, images / 12.92)
    to_xyz = tf.constant(_TO_XYZ) / tf.constant(_WHITE)[:, tf.newaxis]
    xyz = tf.linalg.matvec(to_xyz, linear)
    root = tf.pow(tf.maximum(xyz, _LINEAR_LAB), 1.0 / 3.0)
    x, y, z = tf.unstack(
        tf.where(xyz > _LINEAR_LAB, root, 7.787 * xyz + 16.0 / 116.0), num=3, axis=-1
    )
    return tf.stack([116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)], axis=-1)
