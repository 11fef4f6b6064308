"""Groups of Lockstep and Python PyTorch ranks that are disturbed, or lose a rank, while they form."""

import datetime
import os
import signal
import socket
import time
import unittest

import mixed_ranks
import torch.distributed as dist


def store_at(port):
    timeout = datetime.timedelta(seconds=mixed_ranks.PATIENCE)
    return dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timeout)


def await_connection(port, process):
    """A connection to what `process` serves at the port."""
    deadline = time.monotonic() + mixed_ranks.PATIENCE
    while time.monotonic() < deadline and process.exitcode is None:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=5)
        except ConnectionRefusedError:
            time.sleep(0.01)
    raise AssertionError(f"nobody listens at port {port}")


def disturb(port, process):
    """Port scans, garbage, and connections left half open, which are returned."""
    half_open = []
    for garbage in [b"", b"\x03", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100000, b"\x00" * 5000]:
        for stays in [False, True]:
            connection = await_connection(port, process)
            try:
                connection.sendall(garbage)
            except (BrokenPipeError, ConnectionResetError):
                pass  # thrown out already
            if stays:
                half_open.append(connection)
            else:
                connection.close()
    return half_open


class MixedGroupThatForms(unittest.TestCase):
    def test_strangers_do_not_disturb_a_group_that_forms_at_pythons_store(self):
        port = mixed_ranks.free_port()
        init_method = f"tcp://127.0.0.1:{port}"
        python = {0: mixed_ranks.start_python(init_method, 0, 3)}
        half_open = disturb(port, python[0])
        lockstep = {1: mixed_ranks.start_lockstep(init_method, 1, 3)}
        half_open += disturb(port, python[0])
        lockstep[2] = mixed_ranks.start_lockstep(init_method, 2, 3)
        mixed_ranks.expect_agreement(self, python, lockstep)
        for connection in half_open:
            connection.close()

    def test_lockstep_as_rank_0_outlives_a_python_rank_and_names_who_is_missing(self):
        port = mixed_ranks.free_port()
        init_method = f"tcp://127.0.0.1:{port}"
        doomed = mixed_ranks.start_python(init_method, 1, 3)
        lockstep = mixed_ranks.start_lockstep(init_method, 0, 3, timeout=5)
        store_at(port).wait(["default_pg/0//cpu//0/1"])  # the key by which MeetAllRanks knows a Python rank
        os.kill(doomed.pid, signal.SIGKILL)
        output, _ = lockstep.communicate(timeout=2 * mixed_ranks.PATIENCE)
        self.assertEqual(
            (lockstep.returncode, output), (1, "DEADLINE_EXCEEDED: rank 0 of 3: these ranks have not joined: 2\n")
        )
        doomed.join()

    def test_pythons_rank_0_that_dies_while_the_group_forms_is_named(self):
        port = mixed_ranks.free_port()
        init_method = f"tcp://127.0.0.1:{port}"
        master = mixed_ranks.start_python(init_method, 0, 3)
        lockstep = mixed_ranks.start_lockstep(init_method, 1, 3)
        store_at(port).wait(["lockstep/member/1"])
        start = time.monotonic()
        os.kill(master.pid, signal.SIGKILL)
        output, _ = lockstep.communicate(timeout=2 * mixed_ranks.PATIENCE)
        self.assertLess(time.monotonic() - start, 5)
        self.assertEqual(lockstep.returncode, 1)
        self.assertIn(
            f"UNAVAILABLE: rank 1 of 3: the store at 127.0.0.1:{port} went away while the ranks met: ", output
        )
        master.join()

    def test_pythons_rank_0_that_is_stopped_is_named_by_the_deadline(self):
        port = mixed_ranks.free_port()
        init_method = f"tcp://127.0.0.1:{port}"
        master = mixed_ranks.start_python(init_method, 0, 3)
        lockstep = mixed_ranks.start_lockstep(init_method, 1, 3, timeout=4)
        store_at(port).wait(["lockstep/member/1"])
        os.kill(master.pid, signal.SIGSTOP)
        self.addCleanup(master.join)
        self.addCleanup(os.kill, master.pid, signal.SIGKILL)
        start = time.monotonic()
        output, _ = lockstep.communicate(timeout=2 * mixed_ranks.PATIENCE)
        self.assertLess(time.monotonic() - start, 10)
        self.assertEqual(lockstep.returncode, 1)
        self.assertRegex(
            output,
            "^DEADLINE_EXCEEDED: rank 1 of 3: meeting the other ranks at the store at "
            rf"127\.0\.0\.1:{port}: (no answer|the store does not answer \(.*\))\n$",
        )


if __name__ == "__main__":
    unittest.main()
