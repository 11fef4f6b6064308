"""The peers' side of suite recovery. It trains as recovery.cc does, and writes the same lines to the FIFO.

  torchrun --max-restarts=1000 --nproc-per-node=4 recovery_python.py ddp FOLDER NETWORK HIDDEN BATCH
  recovery_python.py lighthouse PORT HEARTBEAT_TIMEOUT_MS
  recovery_python.py torchft FOLDER NETWORK HIDDEN BATCH PORT GLOO_TIMEOUT_MS REPLICA REPLICAS
  mpirun --with-ft ulfm -n 4 recovery_python.py ulfm FOLDER NETWORK HIDDEN BATCH RANKS

FOLDER has the FIFO `fifo`. It gets `last_step`, and at the end the parameters' bytes in `out`. ddp saves a checkpoint in it every
CHECKPOINT_EVERY steps. A torchft replica group is one process.
"""

import datetime
import os
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).absolute().parents[1]))
import required_packages

required_packages.check("torch", "torchvision")
import torch
import torch.distributed as dist

SAMPLES = 1024  # after which they come again
CHECKPOINT_EVERY = 10  # steps


def make_net(network, hidden):
    torch.manual_seed(7)
    if network == "resnet18":
        import torchvision  # takes a second to load

        return torchvision.models.resnet18()
    linear, relu = torch.nn.Linear, torch.nn.ReLU
    return torch.nn.Sequential(linear(784, hidden), relu(), linear(hidden, hidden), relu(), linear(hidden, 10))


def make_optimizer(net):
    return torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)


class Data:
    def __init__(self, network, batch, ranks):
        images = network == "resnet18"
        generator = torch.Generator().manual_seed(100)
        self._inputs = torch.randn((SAMPLES, *((3, 64, 64) if images else (784,))), generator=generator)
        self._targets = torch.randint(1000 if images else 10, (SAMPLES,), generator=generator)
        self._batch, self.of_rank = batch, batch // ranks

    def loss(self, net, step, rank):
        first = (step * self._batch + rank * self.of_rank) % SAMPLES
        of_rank = slice(first, first + self.of_rank)
        return torch.nn.functional.cross_entropy(net(self._inputs[of_rank]), self._targets[of_rank])


class Folder:
    """What this program and compare write for each other."""

    def __init__(self, path):
        self._path = pathlib.Path(path)
        self._fifo = os.open(self._path / "fifo", os.O_WRONLY)

    def note_commit(self, rank, ranks, group, step, samples):
        line = f"{os.getpid()} {rank} {ranks} {group} {step} {samples} {time.monotonic_ns()}\n"
        os.write(self._fifo, line.encode())

    def last_step(self):
        try:
            return int((self._path / "last_step").read_text())
        except FileNotFoundError:
            return sys.maxsize

    def await_replicas(self, replica, replicas):
        """Until all of them have been here once, so that the first step is already of all."""
        (self._path / f"ready{replica}").touch()
        while not all((self._path / f"ready{other}").exists() for other in range(replicas)):
            time.sleep(0.01)

    def save_checkpoint(self, state):
        torch.save(state, self._path / "checkpoint.new")
        os.replace(self._path / "checkpoint.new", self._path / "checkpoint")

    def load_checkpoint(self):
        path = self._path / "checkpoint"
        return torch.load(path) if path.exists() else None

    def write_parameters(self, net):
        with open(self._path / "out", "wb") as out:
            for parameter in net.parameters():
                out.write(parameter.detach().numpy().tobytes())


def train_ddp(folder, network, hidden, batch):
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    generation = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    net, data, step = make_net(network, hidden), Data(network, batch, ranks), 0
    optimizer = make_optimizer(net)
    if state := folder.load_checkpoint():
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    ddp = torch.nn.parallel.DistributedDataParallel(net)
    while step < folder.last_step():
        optimizer.zero_grad()
        data.loss(ddp, step, rank).backward()
        optimizer.step()
        step += 1
        folder.note_commit(rank, ranks, generation, step, batch)
        if rank == 0 and step % CHECKPOINT_EVERY == 0:
            folder.save_checkpoint({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
    if rank == 0:
        folder.write_parameters(net)
    dist.destroy_process_group()


def make_manager(net, optimizer, port, gloo_timeout_ms, replica):
    """As in torchft's example train_ddp.py, where Gloo's timeout is 5 s."""
    import torchft

    def load_state_dict(state):
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])

    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=datetime.timedelta(milliseconds=gloo_timeout_ms)),
        min_replica_size=1,
        load_state_dict=load_state_dict,
        state_dict=lambda: {"net": net.state_dict(), "optimizer": optimizer.state_dict()},
        replica_id=f"replica_{replica}",
        timeout=datetime.timedelta(seconds=30),
        rank=0,
        world_size=1,
        store_addr="localhost",
        store_port=store.port,
        lighthouse_addr=f"http://localhost:{port}",
        hostname="localhost",
    )
    return manager, store


def average(manager, bucket):
    """The hook of torchft's DistributedDataParallel. Its own one (0.2.0) asserts that no replica is lost when Gloo reports that. After an
    error the manager does not commit the step."""
    manager.allreduce(bucket.buffer()).wait()
    averaged = torch.futures.Future()
    averaged.set_result(bucket.buffer())
    return averaged


def train_torchft(folder, network, hidden, batch, port, gloo_timeout_ms, replica, replicas):
    import torchft

    net, data = make_net(network, hidden), Data(network, batch, replicas)
    plain_optimizer = make_optimizer(net)
    manager, _store = make_manager(net, plain_optimizer, port, gloo_timeout_ms, replica)
    torchft.DistributedDataParallel._comm_hook = staticmethod(average)
    ddp = torchft.DistributedDataParallel(manager, net)
    optimizer = torchft.Optimizer(manager, plain_optimizer)
    folder.await_replicas(replica, replicas)
    while (step := manager.current_step()) < folder.last_step():
        optimizer.zero_grad()
        data.loss(ddp, step, replica).backward()
        optimizer.step()  # nothing, if a replica was lost
        if manager.current_step() > step:
            ranks = manager.num_participants()
            samples = ranks * data.of_rank
            folder.note_commit(replica, ranks, manager._quorum_id, manager.current_step(), samples)
    if replica == 0:
        folder.write_parameters(net)
    manager.shutdown(wait=False)
    os._exit(0)  # its threads would go on


def gradients_in_one_tensor(net):
    """The tensor, of which the gradients are views."""
    gradients = torch.zeros(sum(parameter.numel() for parameter in net.parameters()))
    views = gradients.split([parameter.numel() for parameter in net.parameters()])
    for parameter, view in zip(net.parameters(), views):
        parameter.grad = view.view_as(parameter)
    return gradients


class UlfmTraining:
    """Ranks of MPI with user level failure mitigation. When one dies, the others commit the next step in a world without it. Then they
    spawn a rank in its place."""

    def __init__(self, folder, network, hidden, batch, ranks):
        self._net, self._data = make_net(network, hidden), Data(network, batch, ranks)
        self._optimizer = make_optimizer(self._net)
        self._gradients = gradients_in_one_tensor(self._net)
        for parameter in self._net.parameters():  # or a spawned rank would have none to receive
            self._optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        self._folder, self._ranks, self._step, self._group = folder, ranks, 0, 0
        from mpi4py import MPI  # which starts MPI: when a rank is spawned, the others wait until here

        self._mpi = MPI

    def run(self):
        mpi = self._mpi
        deaths = mpi.ERR_PROC_FAILED, mpi.ERR_PROC_FAILED_PENDING, mpi.ERR_REVOKED
        parent = mpi.Comm.Get_parent()
        self._meet(mpi.COMM_WORLD if parent == mpi.COMM_NULL else parent.Merge(high=True))
        while self._step < self._folder.last_step():
            try:
                self._train_step()
                if self._world.size < self._ranks:
                    self._meet(self._world_with_spawned_ranks())
            except mpi.Exception as error:
                if error.Get_error_class() not in deaths:
                    raise
                self._world.Revoke()
                self._meet(self._world.Shrink())
        if self._world.rank == 0:
            self._folder.write_parameters(self._net)
        self._world.Barrier()
        self._world.Abort(0)  # Open MPI 5.0.11's MPI_Finalize hangs once two ranks have died and been replaced

    def _train_step(self):
        rank, ranks = self._world.rank, self._world.size
        self._gradients.zero_()
        self._data.loss(self._net, self._step, rank).backward()
        self._world.Allreduce(self._mpi.IN_PLACE, self._gradients.numpy())
        self._gradients /= ranks
        self._optimizer.step()
        self._step += 1
        self._folder.note_commit(rank, ranks, self._group, self._step, ranks * self._data.of_rank)

    def _meet(self, world):
        """All ranks of a new world call it. A rank may have taken the last step without the others, and a spawned one has taken none: all
        get the state of the rank with the most steps."""
        world.Set_errhandler(self._mpi.ERRORS_RETURN)
        self._world = world
        steps, groups = zip(*world.allgather((self._step, self._group)))
        self._step, self._group = max(steps), max(groups) + 1
        if min(steps) < self._step:
            momenta = (self._optimizer.state[parameter]["momentum_buffer"] for parameter in self._net.parameters())
            for tensor in (*self._net.state_dict().values(), *momenta):
                world.Bcast(tensor.numpy(), root=steps.index(self._step))

    def _world_with_spawned_ranks(self):
        spawned = self._world.Spawn(sys.executable, sys.argv, maxprocs=self._ranks - self._world.size)
        return spawned.Merge(high=False)


def train_ulfm(*arguments):
    UlfmTraining(*arguments).run()


def serve_lighthouse(port, heartbeat_timeout_ms):
    """With the options of torchft's README."""
    from torchft.coordination import LighthouseServer

    options = {"min_replicas": 1, "join_timeout_ms": 10000, "quorum_tick_ms": 100}
    _server = LighthouseServer(bind=f"[::]:{port}", heartbeat_timeout_ms=heartbeat_timeout_ms, **options)
    while True:
        time.sleep(1)


def main():
    kind, *arguments = sys.argv[1:]
    if kind == "lighthouse":
        serve_lighthouse(*map(int, arguments))
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    path, network, *numbers = arguments
    trainings = {"ddp": train_ddp, "torchft": train_torchft, "ulfm": train_ulfm}
    trainings[kind](Folder(path), network, *map(int, numbers))


if __name__ == "__main__":
    main()
