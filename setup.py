"""Compiles the .proto files when the package is built; all else is in pyproject.toml."""

import pathlib
from importlib import resources

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).resolve().parent


class BuildWithProtos(build_py):
    """`build_py` that also writes object_detection/protos/*_pb2.py."""

    def run(self) -> None:
        super().run()
        target = ROOT if self.editable_mode else pathlib.Path(self.build_lib)
        compile_protos(target)


def compile_protos(target: pathlib.Path) -> None:
    """Writes the Python code of every .proto file below `target`.

    Raises:
      RuntimeError: if the compiler refuses a file; it has printed file and line.
    """
    from grpc_tools import protoc

    protos = sorted(ROOT.glob('object_detection/protos/*.proto'))
    # Has google/protobuf/descriptor.proto.
    include = resources.files('grpc_tools') / '_proto'
    paths = [f'--proto_path={ROOT}', f'--proto_path={include}', f'--python_out={target}']
    if protoc.main(['protoc', *paths, *map(str, protos)]) != 0:
        raise RuntimeError('Compiling object_detection/protos/*.proto failed; see the lines above.')


setup(cmdclass={'build_py': BuildWithProtos})
