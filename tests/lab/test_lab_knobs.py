"""Probe, state and knobs through the real adb program, on an aarch64 root."""

from hwbench.devices import Conditions, controlled, leased, load_device, probe_device, read_state
from hwbench.devices.journal import waiting
from hwbench.devices.knobs import knobs
from hwbench.testing.lab import VirtualPhone
from hwbench.workspace import Workspace


def test_a_phone_is_held_and_put_back(phone: VirtualPhone, tmp_path, monkeypatch):
    # A command takes a second there; the other knobs differ from these in what they say, not in how.
    some = {name: knobs.get(name) for name in ("airplane", "fixed-performance", "stay-awake")}
    monkeypatch.setattr(knobs, "_items", some)
    workspace = Workspace.create(tmp_path)
    phone.write_device_file(tmp_path, "phone")
    folder = phone.machine.root / "data" / "lab"
    settings = folder / "settings"

    def now():
        return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}

    before, told = now(), []
    device = load_device(workspace, "phone")
    with device.transport(told.append) as transport, leased(transport.identity):
        probe = probe_device(transport)
        assert (probe.abi, probe.api_level, probe.page_bytes, probe.libc) == ("arm64-v8a", 30, 4096, "bionic")
        assert {len(cluster.cpus) for cluster in probe.clusters} == {4}
        state = read_state(transport, device.work_dir)
        assert state.screen_on
        assert state.battery is not None
        assert state.thermal_status == 0
        assert state.free_bytes
        with controlled(Conditions.CONTROLLED, probe, transport, told.append) as held:
            assert (folder / "fixed_performance").read_text().strip() == "true"
            assert (settings / "global" / "stay_on_while_plugged_in").read_text().strip() == "7"
            assert set(held.free) == {"airplane"}, "it is reached over TCP"
            assert "cut the line" in held.free["airplane"]
    assert now() == before
    assert waiting() == []
