"""Runs public programs in small, and compares what is shown of them with what they did.

    python -m benchmarks.public_programs [NAME … | more | drawn | last | latest | final]

At each change of progress.json a total must be the planned one or unknown, and in the end the updates those that were
made. Where a program prints nothing that could tell its updates, the epoch is what must be right. Each loss in
metrics.jsonl must be one that the program printed of its training, or of an evaluation.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainjob.contract.paths import CONTRACT

PROGRAMS = {
    "quickstart": "pytorch/tutorials, quickstart",
    "bar_with_loss_in_its_description": "bala1802/modular, train.py",
    "bar_without_a_name": "GranikD/endocap",
    "bar_with_epoch_and_index": "597861190/myspider, train.py",
    "brackets_and_running_loss": "devastate347/ASLtranslator, modelTraining.py",
    "whole_data_each_epoch": "VedangAsgaonkar/Machine-Learning-Notes",
    "gan_in_brackets": "vltkv/Generate-faces-with-GAN",
    "gan_in_words": "khusbuchampaneriagithub/streamlit_stock, gn/step8.py",
    "graph": "shakes76/PatternAnalysis-2023, a GCN's train.py",
    "molecules": "huluxiaohuowa/hdl, train.py",
    "epochs_with_seconds": "gaggenwaschke/NoProp, its log",
    "arrows": "a train_one_epoch that prints arrows",
    "lenet": "SeungminHwang/CS492-MLCV, LENet",
    "carriage_returns": "a loop whose lines end in a carriage return",
    "radiance_field": "a NeRF's train loop",
    "physics": "a PINN's train loop",
    "phases": "pytorch/tutorials, transfer learning",
    "silent_with_a_scaler": "HFtion/Env_set, autocast.py",
    "critic_steps_twice": "a GanTrainLoop with D_steps_per_G_step",
    "reinforce": "pytorch/examples, reinforce",
    "small_gpt": "karpathy/minGPT, chargpt",
    "annotated_transformer": "harvardnlp/annotated-transformer",
    "metric_logger": "facebookresearch/ConvNeXt, its engine",
    "template_with_a_logger": "victoresque/pytorch-template",
    "diffusion": "lucidrains/denoising-diffusion-pytorch, Trainer",
    "backspaces": "kuangliu/pytorch-cifar, progress_bar",
    "translation": "pytorch/tutorials, seq2seq translation",
    "speech": "NVIDIA/tacotron2, train.py",
    "bert": "codertimo/BERT-pytorch, pretrain.py",
    "voices": "ming024/FastSpeech2, train.py",
}

# Chosen, and written down, after what these thirty had shown was mended.
MORE = {
    "steps_over_phases": "howdrox/MRI-Analysis, its log",
    "indented_summaries": "TrinhThaiSonDHQT/Fetal-Head-Segmentation, its log",
    "tokens": "aakashvardhan/s21-gpt2, its log",
    "two_losses_and_their_sum": "tyAlexios/Contrastive-Learning, its log",
    "blocks_with_optimizers": "alexcuozzo-1/nupic.research, greedy_info_max",
    "forecasting": "zhouhaoyi/Informer2020, exp_informer.py",
    "contrastive": "leftthomas/SimCLR, main.py",
    "lecture": "karpathy/ng-video-lecture, gpt.py",
    "images_in_a_bar": "milesial/Pytorch-UNet, train.py",
    "contrast_with_meters": "HobbitLong/SupContrast, main_linear.py",
    "minutes": "bentrevett/pytorch-seq2seq",
    "closures": "pytorch/examples, time_sequence_prediction",
}

# Drawn after that: nothing was tuned on them when they were written down, with what each should show.
DRAWN = {
    "torchvision_segmentation": "pytorch/vision, references/segmentation",
    "torchvision_detection": "pytorch/vision, references/detection",
    "glue_without_trainer": "huggingface/transformers, run_glue_no_trainer.py",
    "text_to_image": "huggingface/diffusers, train_text_to_image.py",
    "ppo": "vwxyzjn/cleanrl, ppo.py",
    "dqn": "vwxyzjn/cleanrl, dqn.py",
    "baselines": "DLR-RM/stable-baselines3, its logger",
    "yolo": "ultralytics/yolov5, train.py",
    "detectron": "facebookresearch/detectron2, its events",
    "fastai": "fastai/fastai, its Recorder",
    "ignite": "pytorch/ignite, examples/mnist",
    "catalyst": "catalyst-team/catalyst, its loggers",
    "molecules_of_ogb": "snap-stanford/ogb, examples/graphproppred/mol",
    "segmentation_models": "qubvel/segmentation_models.pytorch, its epochs",
    "wgan": "eriklindernoren/PyTorch-GAN, wgan_gp.py",
    "cycle_gan": "junyanz/pytorch-CycleGAN-and-pix2pix, train.py",
    "lit_gpt": "Lightning-AI/litgpt, pretrain.py",
    "nanochat": "karpathy/nanochat, base_train.py",
    "modded_nanogpt": "KellerJordan/modded-nanogpt",
    "torchtune": "pytorch/torchtune, full_finetune_distributed.py",
    "speechbrain": "speechbrain/speechbrain, its core",
    "coqui": "coqui-ai/TTS, its console logger",
    "guided_diffusion": "openai/guided-diffusion, its train_util",
    "open_clip": "mlfoundations/open_clip, its train.py",
    "yolox": "Megvii-BaseDetection/YOLOX, its trainer",
    "pointnet": "fxia22/pointnet.pytorch, train_classification.py",
    "monai": "Project-MONAI/tutorials, classification",
    "keras_in_lines": "keras-team/keras, fit(verbose=2)",
    "flax_mnist": "google/flax, examples/mnist",
    "jax_mnist": "jax-ml/jax, examples/mnist_classifier.py",
}
# Drawn after what those had shown was mended.
LAST = {
    "gaussian_splatting": "graphdeco-inria/gaussian-splatting, train.py",
    "efficient_det": "zylo117/Yet-Another-EfficientDet-Pytorch",
    "ssd": "amdegroot/ssd.pytorch, train.py",
    "text_recognition": "clovaai/deep-text-recognition-benchmark",
    "optical_flow": "princeton-vl/RAFT, train.py",
    "super_resolution_suite": "XPixelGroup/BasicSR, its logger",
    "graph_attention": "dmlc/dgl, examples/pytorch/gat",
    "sentence_pairs": "UKPLab/sentence-transformers, fit before 3.0",
    "upscaling": "pytorch/examples, super_resolution",
    "llm_c": "karpathy/llm.c, train_gpt2.py",
    "decision_transformer": "kzl/decision-transformer, gym",
    "spinning_up": "openai/spinningup, vpg",
    "style": "pytorch/examples, fast_neural_style",
    "attention_is_all": "jadore801120/attention-is-all-you-need-pytorch",
    "faster_rcnn": "jwyang/faster-rcnn.pytorch, trainval_net.py",
    "swin": "microsoft/Swin-Transformer, main.py",
    "enwik": "lucidrains/x-transformers, train_enwik8.py",
    "style_gan": "NVlabs/stylegan2-ada-pytorch, training_loop.py",
    "equinox": "patrick-kidger/equinox, examples/mnist",
    "haiku_mnist": "google-deepmind/dm-haiku, examples/mnist.py",
}
# And after those.
LATEST = {
    "cifar_hundred": "weiaicunzai/pytorch-cifar100, train.py",
    "classification_bars": "bearpaw/pytorch-classification, cifar.py",
    "py_gcn": "tkipf/pygcn, train.py",
    "temporal_convolutions": "locuslab/TCN, pmnist_test.py",
    "awd_lstm": "salesforce/awd-lstm-lm, main.py",
    "self_critical": "ruotianluo/self-critical.pytorch, train.py",
    "captions": "sgrvinod/a-PyTorch-Tutorial-to-Image-Captioning",
    "wave_gan": "kan-bayashi/ParallelWaveGAN, train.py",
    "actor_critic": "ikostrikov/pytorch-a2c-ppo-acktr-gail",
    "soft_actor_critic": "pranz24/pytorch-soft-actor-critic",
    "meta_learning": "dragen1860/MAML-Pytorch",
    "super_gan": "eriklindernoren/PyTorch-GAN, esrgan.py",
}
FINAL = {
    "spade": "NVlabs/SPADE, train.py",
    "sphere_face": "clcarwin/sphereface_pytorch, train.py",
    "semantic_segmentation": "meetps/pytorch-semseg, train.py",
    "deep_speech": "SeanNaren/deepspeech.pytorch, train.py",
    "zero_to_all": "hunkim/PyTorchZeroToAll, 10_1_cnn_mnist.py",
    "morvan": "MorvanZhou/PyTorch-Tutorial, 401_CNN.py",
    "show_and_tell": "yunjey/pytorch-tutorial, image captioning",
    "deep_rl": "ShangtongZhang/DeepRL, its logger",
    "sequence_to_sequence": "IBM/pytorch-seq2seq, supervised_trainer.py",
    "old_mmseg": "open-mmlab/mmsegmentation before 1.0",
    "keywords": "castorini/honk, train.py",
    "vocoder": "r9y9/wavenet_vocoder, train.py",
}
_FILES = {
    **dict.fromkeys(FINAL, "last.py"),
    **dict.fromkeys(LATEST, "last.py"),
    **dict.fromkeys(LAST, "last.py"),
    **dict.fromkeys(DRAWN, "drawn.py"),
    **dict.fromkeys([*list(DRAWN)[-3:], *list(LAST)[-2:]], "without_torch.py"),
}


class Shown:
    """What was shown of one program, and what it did."""

    def __init__(self, name: str) -> None:
        run = Path(tempfile.mkdtemp(prefix="public-"))
        facts: dict[str, object] = {"job": {}, "cluster": {"file": {}}}
        script = str(Path(__file__).with_name(_FILES.get(name, "programs.py")))
        job = {"contract": CONTRACT, "train": None, "command": [sys.executable, script, name], "asked": facts}
        (run / "job.json").write_text(json.dumps(job))
        (run / "code").mkdir()
        words = [sys.executable, "-m", "trainjob.launch", "--launcher", "local", "--instances", "1", str(run), "--"]
        environ = {**os.environ, "TRUTH": str(run / "truth.json"), "OMP_NUM_THREADS": "1"}
        started = subprocess.Popen([*words, sys.executable, script, name], env=environ, stderr=subprocess.DEVNULL)
        self.seen: list[tuple[int | None, int | None]] = []
        self.epoch: int | None = None
        while started.poll() is None:
            self._look(run)
            time.sleep(0.1)
        self._look(run)
        self.truth: dict[str, Any] = json.loads((run / "truth.json").read_text())
        metrics = run / "metrics.jsonl"
        self.lines = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
        self.log = run / "logs" / "rank-0000.log"

    def _look(self, run: Path) -> None:
        if (run / "progress.json").exists():
            record = json.loads((run / "progress.json").read_text())
            self.epoch = record["epoch"]
            if not self.seen or self.seen[-1] != (record["update"], record["total_updates"]):
                self.seen.append((record["update"], record["total_updates"]))

    def faults(self) -> Iterator[str]:
        """Yield what was shown wrongly."""
        planned = self.truth["total"] if isinstance(self.truth["total"], list) else [self.truth["total"]]
        updates = [update for update, _ in self.seen if update is not None]
        if self.truth["updates"] is None and self.epoch not in (None, self.truth["epochs"], self.truth["epochs"] - 1):
            yield f"epoch {self.epoch} of {self.truth['epochs']}"
        if updates != sorted(updates) or (updates and updates[-1] != self.truth["updates"]):
            yield f"update {updates[-1]} of {self.truth['updates']}"
        for total in {total for _, total in self.seen} - {None, *planned}:
            yield f"total {total} of {self.truth['total']}"
        for kind, of in (("train", "training"), ("evaluation", "held_out")):
            losses = [line["loss"] for line in self.lines if line["kind"] == kind and line.get("loss") is not None]
            strange = [one for one in losses if min((abs(one - its) for its in self.truth[of]), default=1.0) > 1e-6]
            if strange:
                yield f"{of} loss {strange[0]}"

    def row(self) -> str:
        """Return what is shown in the end."""
        update, total = self.seen[-1] if self.seen else (None, None)
        last = [line["loss"] for line in self.lines if line["kind"] == "train" and line.get("loss") is not None]
        held_out = [
            line["loss"] for line in self.lines if line["kind"] == "evaluation" and line.get("loss") is not None
        ]
        shown = (update, total or "unknown", last[-1] if last else "-", held_out[-1] if held_out else "-")
        if self.truth["updates"] is None:
            return "epoch {}, update {} of {}, loss {}, held-out {}".format(self.epoch, *shown)
        return "update {} of {}, loss {}, held-out {}".format(*shown)


def main(names: list[str]) -> None:
    right = wrong = with_total = 0
    for name in names or PROGRAMS:
        shown = Shown(name)
        faults = list(shown.faults())
        is_right = bool(shown.seen) and shown.seen[-1][0] == shown.truth["updates"]
        if shown.truth["updates"] is None:
            is_right = is_right and shown.epoch is not None
        right, wrong, with_total = (
            right + is_right,
            wrong + bool(faults),
            with_total + (shown.seen[-1:] != [] and shown.seen[-1][1] is not None),
        )
        print(
            f"{name:34} {shown.row()}{'; WRONG: ' + '; '.join(faults) + f' ({shown.log})' if faults else ''}",
            flush=True,
        )
    count = len(names or PROGRAMS)
    print(f"{count} programs: updates right in {right}, a total in {with_total}, something shown wrongly in {wrong}")


if __name__ == "__main__":
    main(
        [
            *{"more": MORE, "drawn": DRAWN, "last": LAST, "latest": LATEST, "final": FINAL}.get(
                " ".join(sys.argv[1:]), sys.argv[1:]
            )
        ]
    )
