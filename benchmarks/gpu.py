"""Times the compiled training step and inference on an accelerator that has no TensorFlow.

    python benchmarks/gpu.py export --directory exported             # needs TensorFlow, no GPU
    python benchmarks/gpu.py run --directory exported                # needs jax and numpy alone
    python benchmarks/gpu.py run --directory exported --torchvision python3 --minutes 10

`export` writes portable StableHLO, a file for each work, precision and batch size; weights are
arguments of the functions, and none are written. `run` makes random ones, executes the files by
PJRT on JAX's default device, and compares their first outputs with what TensorFlow computed on the
CPU. With --torchvision PYTHON it also measures torchvision's Mask R-CNN by that interpreter, eager
and with `torch.compile`; its bfloat16 is that of `torch.autocast`. With --minutes it ends after
that time, and repeating the command measures only what the file of results does not have yet.
"""

import argparse
import pathlib
import sys
from collections.abc import Sequence

WORKS = ('inference', 'training')
PRECISIONS = ('float32', 'tf32', 'bfloat16')


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest='command', required=True)
    export = commands.add_parser('export', help='write the functions; needs TensorFlow')
    export.add_argument('--config', default='mask_rcnn_resnet50_fpn_832x1344_coco17')
    export.add_argument('--size', type=int, help="side of the images; the config's if not given")
    export.add_argument('--set', action='append', default=[], metavar='PATH=VALUE')
    export.add_argument(
        '--expect',
        type=int,
        default=1,
        metavar='BATCH_SIZE',
        help='up to which batch size TensorFlow computes what is to be expected',
    )
    run = commands.add_parser('run', help='time them; needs jax and numpy')
    run.add_argument('--steps', type=int, default=20, help='timed ones')
    run.add_argument('--torchvision', metavar='PYTHON', help='that has torch and torchvision')
    run.add_argument(
        '--minutes', type=float, help='after which to end; repeat the command to continue'
    )
    run.add_argument('--channels_last', action='store_true', help="torchvision's memory layout")
    run.add_argument('--json', type=pathlib.Path, help='DIRECTORY/results.json if not given')
    run.add_argument('--here', action='store_true', help='one file, in this process, as JSON')
    for command in (export, run):
        command.add_argument('--directory', type=pathlib.Path, required=True)
        command.add_argument('--work', nargs='+', choices=WORKS, default=list(WORKS))
        command.add_argument('--precision', nargs='+', choices=PRECISIONS, default=list(PRECISIONS))
        command.add_argument('--batch_size', nargs='+', type=int, default=[1, 8, 16, 32])
    return parser


def main(words: Sequence[str] | None = None) -> None:
    options = arguments().parse_args(words)
    # Each needs libraries that the other's machine may lack.
    if options.command == 'export':
        import gpu_export

        gpu_export.export(options)
    else:
        # Nothing of this toolkit need be installed there.
        sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
        import gpu_run

        gpu_run.run(options)


if __name__ == '__main__':
    main()
