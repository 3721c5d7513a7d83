import json

from sparring.run_folder.files import append_line, read_lines, write_json


def test_a_torn_line_is_passed_over_and_the_next_one_starts_afresh(tmp_path):
    path = tmp_path / "events.jsonl"
    append_line(path, {"n": 1})
    with path.open("ab") as file:
        file.write(b'{"n": 2, "torn')
    append_line(path, {"n": 3})
    assert [row["n"] for row in read_lines(path)] == [1, 3]


def test_replacing_a_file_leaves_nothing_else_behind(tmp_path):
    path = tmp_path / "summary.json"
    write_json(path, {"a": 1})
    write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 2}
    assert list(tmp_path.iterdir()) == [path]
