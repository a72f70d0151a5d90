import contextlib
import errno
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hwbench.deploy import atomic_export
from hwbench.deploy.atomic_export import check_place, place, settle, staging
from hwbench.deploy.file_names import MANIFEST, MODEL
from hwbench.errors import InvalidValue, WorkspaceError


def put(folder: Path, name: str) -> None:
    """An export whose two files say the same name."""
    (folder / MODEL).write_text(name)
    (folder / MANIFEST).write_text(json.dumps(name))


def export(out: Path, name: str) -> None:
    with staging(out) as folder:
        put(folder, name)
        place(folder, out)


def names(out: Path) -> list[str]:
    return sorted(p.name for p in out.iterdir())


def test_a_new_export_takes_the_place_of_the_old_and_leaves_other_files(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    export(out, "one")
    (out / "report.html").write_text("mine")
    export(out, "two")
    assert names(out) == [MANIFEST, MODEL, "report.html"]
    assert ((out / MODEL).read_text(), json.loads((out / MANIFEST).read_text())) == ("two", "two")
    assert (out / MODEL).stat().st_mode & 0o777 == 0o644


def test_what_fails_before_the_end_changes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for expected in ([], [MANIFEST, MODEL]):
        with contextlib.suppress(KeyboardInterrupt), staging(out) as folder:
            put(folder, "broken")
            raise KeyboardInterrupt
        assert (names(out) if out.exists() else []) == expected
        export(out, "whole")
    assert (out / MODEL).read_text() == "whole"


def failing_at(patch: pytest.MonkeyPatch, step: int, error: BaseException, lasting: bool = False) -> None:
    """Has the ``step``-th change or sync of a name raise an error; lasting: and all that follow."""
    calls = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            nonlocal calls
            calls += 1
            if calls == step or (lasting and calls > step):
                raise error
            return real(*arguments, **options)

        return call

    patch.setattr(Path, "unlink", counted(Path.unlink))
    patch.setattr(Path, "replace", counted(Path.replace))
    patch.setattr(atomic_export, "sync_folder", counted(atomic_export.sync_folder))


def stopped_export(out: Path, step: int, error: BaseException, lasting: bool = False) -> None:
    """An export whose ``place`` fails at a step."""
    with pytest.MonkeyPatch.context() as patch, staging(out) as folder:
        put(folder, "two")
        failing_at(patch, step, error, lasting)
        place(folder, out)


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), FULL])
@pytest.mark.parametrize("step", range(1, 10))
def test_wherever_it_stops_there_is_one_whole_export(tmp_path: Path, step: int, error: BaseException) -> None:
    out = tmp_path / "out"
    export(out, "one")
    with pytest.raises((KeyboardInterrupt, WorkspaceError)):
        stopped_export(out, step, error)
    assert names(out) == [MANIFEST, MODEL]
    assert json.loads((out / MANIFEST).read_text()) == (out / MODEL).read_text()


@pytest.mark.parametrize("step", range(4, 9))
def test_what_cannot_be_finished_at_once_is_finished_later(tmp_path: Path, step: int) -> None:
    out = tmp_path / "out"
    export(out, "one")
    with pytest.raises(WorkspaceError):
        stopped_export(out, step, FULL, lasting=True)
    settle(out)
    assert names(out) == [MANIFEST, MODEL]
    assert json.loads((out / MANIFEST).read_text()) == (out / MODEL).read_text() == "two"


def test_what_stopped_is_not_mixed_with_an_export_that_came_since(tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(out, "one")
    with staging(out) as folder:
        put(folder, "two")
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            failing_at(patch, 7, KeyboardInterrupt())  # the model has moved, and the manifest has not
            place(folder, out)
        assert (names(folder), names(out)) == ([".complete", ".lock", MANIFEST], [folder.name, MODEL])
        export(out, "three")
    assert names(out) == [MANIFEST, MODEL]
    assert json.loads((out / MANIFEST).read_text()) == (out / MODEL).read_text() == "three"


def test_exports_at_the_same_time_do_not_mix(tmp_path: Path) -> None:
    out = tmp_path / "out"
    failures: list[BaseException] = []

    def many(name: str) -> None:
        try:
            for number in range(25):
                export(out, f"{name}{number}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=many, args=(name,)) for name in "abc"]
    out.mkdir()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert json.loads((out / MANIFEST).read_text()) == (out / MODEL).read_text()
    assert names(out) == [MANIFEST, MODEL]


def test_what_a_killed_export_left_is_swept_after_a_day(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for name, age_s in ((".export.old.tmp", 2 * 24 * 3600), (".export.new.tmp", 60)):
        (out / name).mkdir(parents=True)
        os.utime(out / name, (time.time() - age_s,) * 2)
    export(out, "one")
    assert names(out) == [".export.new.tmp", MANIFEST, MODEL]


def test_19_23_a_step_of_the_clock_does_not_sweep_an_export_that_lives(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with staging(out) as folder:
        put(folder, "slow")
        os.utime(folder, (time.time() - 30 * 24 * 3600,) * 2)  # as if the clock had stepped forward by a month
        export(out, "quick")
        assert folder.is_dir()
        place(folder, out)
    assert (out / MODEL).read_text() == json.loads((out / MANIFEST).read_text()) == "slow"
    assert names(out) == [MANIFEST, MODEL]


def killed_while_placing(out: Path, step: int) -> None:
    """Makes an export and dies by SIGKILL before the ``step``-th change of a name; 0: while the files are made."""
    left = step

    def killing(real: object) -> object:
        def call(self: Path, *arguments: object, **options: object) -> object:
            nonlocal left
            if self.exists():
                left -= 1
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
            return real(self, *arguments, **options)

        return call

    with staging(out) as folder:
        (folder / MODEL).write_text("two")
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        (folder / MANIFEST).write_text(json.dumps("two"))
        Path.unlink, Path.replace = killing(Path.unlink), killing(Path.replace)
        place(folder, out)


@pytest.mark.parametrize("step", range(4))
def test_19_23_what_a_kill_left_is_swept_at_once_and_finished_where_it_was_complete(tmp_path: Path, step: int) -> None:
    out = tmp_path / "out"
    export(out, "one")
    process = os.fork()
    if process == 0:
        try:
            killed_while_placing(out, step)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    settle(out)
    assert (out / MODEL).read_text() == json.loads((out / MANIFEST).read_text()) == ("two" if step else "one")
    export(out, "three")
    assert names(out) == [MANIFEST, MODEL]


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidValue, match="expected a folder"), staging(tmp_path / "file"):
        pass
    with pytest.raises(WorkspaceError, match="a part of the path is a file"), staging(tmp_path / "file" / "below"):
        pass


@pytest.mark.parametrize("cause", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_want_of_rights_or_room_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: int) -> None:
    def refuse(*arguments: object, **options: object) -> str:
        raise OSError(cause, os.strerror(cause), str(tmp_path / "out"))

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    with pytest.raises(WorkspaceError, match="cannot write"), staging(tmp_path / "out"):
        pass


def test_a_full_disk_while_building_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="no space is left"), staging(tmp_path / "out"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "model.pte")
    assert not (tmp_path / "out").exists()


OURS = json.dumps({"runtime": "executorch", "sha256": "0" * 64})


@pytest.mark.parametrize(
    ("there", "model", "told"),
    [
        ({}, MODEL, ""),
        ({MODEL: "", MANIFEST: OURS}, MODEL, ""),
        ({MODEL: "", MANIFEST: OURS}, "model.onnx", ""),
        ({"model.onnx": "", "model.pt": ""}, MODEL, ""),
        ({MODEL: ""}, MODEL, MODEL),
        ({MODEL: "", "model.onnx": "", MANIFEST: OURS}, "model.onnx", "model.onnx"),
        ({MANIFEST: '{"name": "a web page", "icons": []}'}, MODEL, MANIFEST),
        ({MANIFEST: "[]", MODEL: ""}, MODEL, f"{MODEL} and {MANIFEST}"),
        ({MANIFEST: OURS.replace("executorch", "another")}, MODEL, ""),
        ({MANIFEST: OURS[:20], MODEL: ""}, MODEL, ""),  # damaged
    ],
)
def test_what_no_export_wrote_is_not_replaced(tmp_path: Path, there: dict[str, str], model: str, told: str) -> None:
    out = tmp_path / "out"
    check_place(out, model)
    out.mkdir()
    for name, content in there.items():
        (out / name).write_text(content)
    if not told:
        check_place(out, model)
        return
    with pytest.raises(InvalidValue, match=f"--out: {told} in {out} came from no export, and would be replaced"):
        check_place(out, model)


@pytest.mark.parametrize("killed", [False, True])
def test_the_model_of_the_export_before_goes_and_no_other(tmp_path: Path, killed: bool) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in ("model.onnx", "model.ts", "model.tflite"):
        (out / name).write_text("before")
    (out / MANIFEST).write_text(json.dumps({"runtime": "onnx", "sha256": "0" * 64}))
    with staging(out) as folder, pytest.MonkeyPatch.context() as patch:
        put(folder, "one")
        if killed:  # after the manifest has gone
            patch.setattr(Path, "unlink", _stops_behind(Path.unlink))
        with contextlib.suppress(KeyboardInterrupt):
            place(folder, out)
        if killed:
            patch.undo()
            (folder / ".lock").unlink()
            os.utime(folder, (time.time() - 2 * 24 * 3600,) * 2)
            assert names(out) == [folder.name, "model.onnx", "model.tflite", "model.ts"]
            settle(out)
    assert names(out) == [MANIFEST, MODEL, "model.tflite", "model.ts"]


def _stops_behind(real: Callable[..., None]) -> Callable[..., None]:
    def once(self: Path, **options: bool) -> None:
        real(self, **options)
        raise KeyboardInterrupt

    return once
