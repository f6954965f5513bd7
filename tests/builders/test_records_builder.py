"""What the order of records depends on."""

from object_detection.builders import records_builder
from tests.builders.test_dataset_builder import config
from tests.data import examples


def test_the_layout_is_of_what_orders_the_records(records):
    def layout(**fields):
        reader = config(records).train_input_reader
        for name, value in fields.items():
            setattr(reader, name, value)
        return records_builder.layout(reader)

    assert layout() == layout(num_prefetch_batches=7, max_number_of_boxes=9)
    others = [
        layout(shuffle=False),
        layout(shuffle_buffer_size=3),
        layout(num_readers=2),
        layout(sample_1_of_n_examples=2),
    ]
    assert len({layout(), *others}) == 5


def test_the_layout_counts_files_by_name_and_size(records, tmp_path):
    def layouts():
        reader = config(records).train_input_reader
        return [records_builder.layout(reader, by_sizes=by_sizes) for by_sizes in (True, False)]

    before = layouts()
    examples.write_records(tmp_path / 'train.record-00001-of-00003', [examples.example()])
    after = layouts()
    assert before[0] != after[0]
    assert before[1] == after[1] != after[0]
