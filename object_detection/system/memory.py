"""How much memory the process and its devices have taken."""

import resource

import tensorflow as tf


def peaks() -> dict[str, int]:
    """Returns the most bytes that were in use at a time: 'host', of this process, and 'GPU:0' and
    so on, of TensorFlow's on each device that counts them."""
    # Linux counts in KiB.
    found = {'host': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    for device in tf.config.list_logical_devices():
        if device.device_type == 'CPU':
            continue
        name = ':'.join(device.name.split(':')[-2:])
        try:
            found[name] = tf.config.experimental.get_memory_info(device.name)['peak']
        except (ValueError, tf.errors.OpError):
            # TPUs, and devices of other makers, may not tell.
            continue
    return found
