"""A place that the values of a training are written to: a table for spreadsheets."""

import csv
import dataclasses
import pathlib

from object_detection.builders.sink_builder import Run, Sink, StepRecord


@dataclasses.dataclass
class CsvSink(Sink):
    """Appends a line `step,name,value` for each value to a file in a folder of model_dir.

    The folder is `train` for the steps and `eval` for the metrics.

    Attributes:
      file_name: name of the file.
    """

    file_name: str = 'steps.csv'

    def start(self, run: Run) -> None:
        """Keeps the lines of the steps that the run resumes from."""
        self._path = pathlib.Path(run.folder, self.file_name)
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        kept = [line for line in lines if int(line.split(',')[0]) <= run.step]
        self._path.write_text(''.join(f'{line}\n' for line in kept))

    def write(self, record: StepRecord) -> None:
        """Appends the lines."""
        with self._path.open('a', newline='') as file:
            writer = csv.writer(file, lineterminator='\n')
            writer.writerows((record.step, name, value) for name, value in record.values.items())
