"""A script as users have it for torchrun with --max_restarts: it saves a snapshot after each epoch and continues from the last one.

usage: elastic_script.py FOLDER EPOCH. Rank 1 kills itself in the middle of EPOCH, the first time. FOLDER/snapshot.pt has the result,
and FOLDER/starts.txt a line for each start: the rank, the restart count and the first epoch.
"""

import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

EPOCHS, STEPS, BATCH = 4, 5, 16


class Trainer:
    def __init__(self, folder):
        self.rank, self.snapshot = dist.get_rank(), f"{folder}/snapshot.pt"
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        self.model = DistributedDataParallel(net)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.next_epoch = 0
        if os.path.exists(self.snapshot):
            self.load()

    def load(self):
        saved = torch.load(self.snapshot, weights_only=True)
        self.model.module.load_state_dict(saved["net"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.next_epoch = saved["next_epoch"]

    def save(self):
        saved = {"net": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save({**saved, "next_epoch": self.next_epoch}, f"{self.snapshot}.new")
        os.replace(f"{self.snapshot}.new", self.snapshot)

    def train_epoch(self, dies):
        generator = torch.Generator().manual_seed(100 * self.next_epoch + self.rank)
        for step in range(STEPS):
            if dies and step == STEPS // 2:
                os.kill(os.getpid(), signal.SIGKILL)
            inputs = torch.randn(BATCH, 20, generator=generator)
            self.optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.model(inputs), inputs.sum(1, keepdim=True)).backward()
            self.optimizer.step()
        self.next_epoch += 1
        if self.rank == 0:
            self.save()
        dist.barrier()


@record
def main():
    folder, epoch_of_death = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("gloo")
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    trainer = Trainer(folder)
    with open(f"{folder}/starts.txt", "a") as starts:
        starts.write(f"{trainer.rank} {restarts} {trainer.next_epoch}\n")
    while trainer.next_epoch < EPOCHS:
        trainer.train_epoch(dies=trainer.rank == 1 and restarts == 0 and trainer.next_epoch == epoch_of_death)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
