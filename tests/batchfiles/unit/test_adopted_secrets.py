"""No secret of a batch file reaches the job file, the cluster file, or what adopt prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batchfiles.adoption.account import Where
from batchfiles.adoption.adopt import Adoption, adoption_of
from batchfiles.adoption.start import AdoptionError
from batchfiles.slurm.request import SiteFacts
from batchfiles.slurm.script import script_of
from tests.support.cases import each
from trainjob.contract.programs.secrets_in_shell import secrets_in

KEY = "0123456789abcdef0123456789abcdef01234567"
HEAD = "#!/bin/bash\n#SBATCH --nodes=1 --gres=gpu:1 --time=1:00:00\n"
TRAIN = "srun python train.py\n"


def adopted(text: str) -> Adoption:
    return adoption_of(script_of(Path("train.sbatch"), text.encode(), SiteFacts()), Path("/project"))


@each(
    ("line", "secret"),
    [
        (f"#SBATCH --export=ALL,WANDB_API_KEY={KEY}", KEY),
        (f"export WANDB_API_KEY={KEY}", KEY),
        (f"export HF_TOKEN='{KEY}'  # mine", KEY),
        (f"# export WANDB_API_KEY={KEY}", KEY),
        (f"wandb login {KEY}", KEY),
        (f"wandb login --relogin {KEY}", KEY),
        (f"huggingface-cli login --token {KEY}", KEY),
        ("git clone https://x:T0psecret@example.org/repo.git", "T0psecret"),
        ("export DATA_SOURCE=https://me:pw@example.org/data", "me:pw@"),
        ("export AWS_SECRET_ACCESS_KEY=ab/cdEFGH/ijkl+mnopqrstuvwxyz0123456789AB", "ab/cdEFGH/ijkl"),
        ("#SBATCH --export=ALL,AWS_SECRET_ACCESS_KEY=ab/cdEFGHijkl,MODE=fast", "ab/cdEFGHijkl"),
        ("# AWS_SECRET_ACCESS_KEY=ab/cdEFGHijkl", "ab/cdEFGHijkl"),
        (f"prepare --wandb_api_key {KEY}", KEY),
        (f"prepare --hf-token '{KEY}'", KEY),
        (f"printf -v DB_PASSWORD %s {KEY}; export DB_PASSWORD", KEY),
        (f"printf -v DB_PASSWORD '%s' '{KEY}'", KEY),
        (f"read -r HF_TOKEN <<< '{KEY}'", KEY),
        (f"HF_TOKEN+={KEY}; export HF_TOKEN", KEY),
        (f": ${{HF_TOKEN:={KEY}}}", KEY),
        (f"curl -H 'Authorization: Bearer {KEY}' https://example.org", KEY),
        (f"curl -H 'X-Api-Key: {KEY}' https://example.org", KEY),
        ("curl -u me:hunter2 https://example.org", "hunter2"),
        ("sshpass -p hunter2 ssh host true", "hunter2"),
        (f"cat > c.yaml <<EOF\napi_key: {KEY}\nEOF", KEY),
        (f'cat > c.json <<EOF\n{{"api_key": "{KEY}"}}\nEOF', KEY),
        ("curl --password=hunter2hunter2 https://example.org", "hunter2hunter2"),
        ("export SOME_NAME=hf_abcdefghijklmnopqrstuvwx", "hf_abcdefghijklmnopqrstuvwx"),
        ("export DB_PASSWORD='pa$word1'", "pa$word1"),
        ("# export DB_PASSWORD='pa$word1'", "pa$word1"),
        ("wandb login hf_abcdefghijklmnopqrstuvwx", "hf_abcd"),
        ("cat > $HOME/.netrc <<EOF\nmachine a.org login me password swordfish\nEOF", "swordfish"),
        ("cat <<EOF > $NETRC\nmachine a.org\n  login me\n  password swordfish\nEOF", "swordfish"),
        ("w() {\ncat > $NETRC <<EOF\nmachine a.org login me password swordfish\nEOF\n}\nw", "swordfish"),
        ("echo 'host:5432:base:me:swordfish' > ~/.pgpass", "swordfish"),
        ("F=~/.pgpass; echo 'h:1:b:me:swordfish' >> $F", "swordfish"),
        ("{ echo 'h:1:b:me:swordfish'; } > ~/.pgpass", "swordfish"),
        ("echo 'h:1:b:me:swordfish' | tee -a ~/.pgpass", "swordfish"),
    ],
)
def test_a_secret_beside_the_training_is_left_out_and_said(line: str, secret: str) -> None:
    adoption = adopted(f"{HEAD}{line}\n{TRAIN}")
    account = json.dumps(adoption.as_json())
    assert secret not in adoption.job + (adoption.cluster or "") + account
    assert "python" in adoption.job
    if not line.startswith("# "):
        assert "secrets_file" in account


def test_a_secret_in_a_directive_takes_none_beside_it_away() -> None:
    found = adopted(f"#!/bin/bash\n#SBATCH --ntasks=2 --time=10 --export=ALL,WANDB_API_KEY={KEY},MODE=fast\n{TRAIN}")
    where = {one.text.split("=")[0]: one.where for one in found.account.entries if one.line == 2}
    assert where == {"#SBATCH --ntasks": Where.JOB, "#SBATCH --time": Where.JOB, "#SBATCH --export": Where.LOST}
    assert KEY not in json.dumps(found.as_json()) + found.job


def test_a_secret_written_behind_the_training_is_not_printed() -> None:
    account = json.dumps(adopted(f"{HEAD}{TRAIN}echo 'h:1:b:me:swordfish' > ~/.pgpass\n").as_json())
    assert "swordfish" not in account
    assert "secrets_file" in account


@pytest.mark.parametrize(
    "settings",
    [
        'DB_PASSWORD=\'pa$word1\' API_TOKEN="abc\\"def123"',
        'API_TOKEN=abc\\"def123',
        "DB_PASSWORD=p'a$w'ord1",
        "DB_PASSWORD=$'pa$word1'",
    ],
)
def test_a_secret_before_the_training_is_left_out_however_it_is_quoted(settings: str) -> None:
    adoption = adopted(f"{HEAD}{settings} MODE=fast srun python train.py\n")
    text = adoption.job + (adoption.cluster or "") + json.dumps(adoption.as_json())
    assert "env: {MODE: fast}" in adoption.job
    assert not [part for part in ("word1", "ord1", "def123") if part in text]
    assert "secrets_file" in text


@pytest.mark.parametrize("setting", [f"HF_TOKEN={KEY}", f"DB_PASSWORD='a${KEY}'"])
def test_a_secret_that_env_sets_is_left_out_and_said(setting: str) -> None:
    adoption = adopted(f"{HEAD}srun env {setting} python train.py\n")
    assert KEY not in adoption.job + str(adoption.as_json())
    assert f"{setting.partition('=')[0]}=…" in [one.text for one in adoption.account.lost]


@pytest.mark.parametrize(
    "train",
    [
        f"python train.py --token={KEY}",
        f"python train.py --wandb_api_key {KEY}",
    ],
)
def test_a_secret_among_the_words_of_the_training_is_refused(train: str) -> None:
    with pytest.raises(AdoptionError, match=r"secret among its words.*secrets_file") as refused:
        adopted(f"{HEAD}srun {train}\n")
    assert KEY not in str(refused.value)


@each(
    "line",
    [
        "export HF_TOKEN=$TOKEN",
        "export API_KEY=your-key-here",
        "# the password: ask for it",
        "# token: see page 12",
        "read -r TOKEN < file",
        "docker run --user 1000:1000 image",
        "curl -u $NAME:$PASSWORD https://example.org",
        "PRETRAINED=/models/a",
        "wandb login",
        "MODE=key",
        "SSH_KEY=~/.ssh/id",
        "--token $HF_TOKEN",
        "--tokenizer gpt2",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    assert secrets_in(line) == frozenset()


def test_a_column_of_a_table_is_no_secret() -> None:
    for words, is_secret in (
        ("--chosen_key chosen", False),
        ("--api_key questions", False),
        ("--api_key x9f8a7s6d5", True),
        ("--chosen_key x9f8a7s6d5", False),
        ("--chosen_key x9f8a7s6d5x9f8a7s6d5", True),
    ):
        assert bool(secrets_in(f"python train.py {words}")) == is_secret
