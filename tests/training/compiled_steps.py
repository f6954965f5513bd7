"""Does compiled steps of two sizes and counts the programs in the cache: DIRECTORY."""

import json
import os
import sys

from object_detection.system import tensorflow_setup

if __name__ == '__main__':
    directory = sys.argv[1]
    tensorflow_setup.use_compilation_cache(directory)

    import tensorflow as tf

    from object_detection.optimizers.gradients import TOTAL_LOSS, Execution
    from tests.optimizers import test_gradients as tests

    data = tests.batches(count=6, sizes=tests.SIZES)
    spec = tests.spec_of(data[0], any_size=True)
    execution = Execution(jit_compile=True, accumulation_steps=2, bucket_sizes=tests.SIZES)
    train_step = tests.make(spec, execution)
    losses, programs = [], []
    for batch in data:
        losses.append(float(train_step(batch)[TOTAL_LOSS]))
        programs.append(len(os.listdir(directory)))
    dataset = tf.data.Dataset.from_generator(lambda: iter(data), output_signature=spec)
    train_step.repeat(iter(dataset), len(data))
    told = {'losses': losses, 'programs': programs, 'after_many': len(os.listdir(directory))}
    print(json.dumps(told))
