"""Names and forms by which secrets are known: files that are not copied, and variables that are not recorded.

The kinds are those of detect-secrets, gitleaks and gitrob, as far as they seldom stand for anything else in a project
that trains.
"""

from __future__ import annotations

import re
from typing import List

# Of a file, or of a folder with everything in it; of a file alone where a $ follows. Case does not matter.
_FILES = (
    # environments and tokens
    *(".env", ".env.*", "*.env", ".envrc", ".secrets", ".secrets.*", "secret.*", "secrets.*", "token$", "token.txt"),
    *(".token", "*.token", "*_token", "*-token", "*access_token*", "*api_token*", "*auth_token*", "hf_token*"),
    *("*apikey*", "*api_key*", "*api-key*", "*.apikey", "*password.txt", "*passwords.txt", "passwd$"),
    *(".htpasswd", "*.secret"),
    # accounts of cloud services
    *("credentials$", "credentials.*", "*_credentials.json", "*-credentials.json", "client_secret*.json"),
    *("*service-account*.json", "*service_account*.json", "gcp-key*.json", "kaggle.json", ".aws", ".azure", ".gcloud"),
    *(".config/gcloud", ".config/gh", ".config/hub", ".boto", ".s3cfg", ".passwd-s3fs", "rclone.conf", ".rclone.conf"),
    *(".databrickscfg", ".comet.config", ".modal.toml", ".vault-token", ".vault_pass*", "*vault_password*"),
    *("*.tfstate", "*.tfstate.*", "*.tfvars", "*.tfvars.json", ".terraformrc", "terraform.rc", ".terraform.d"),
    # registries, hosts and version control
    *(".netrc", "_netrc", ".npmrc", ".yarnrc.yml", ".pypirc", "pip.conf", ".condarc", ".cargo/credentials*"),
    *(".git-credentials", ".authinfo", ".authinfo.*", ".dockercfg", ".docker/config.json", ".kube", "kubeconfig"),
    *("kubeconfig.*", "*.kubeconfig", ".ssh", ".gnupg", ".password-store"),
    # keys
    *("*.pem", "*.key", "*.p12", "*.p8", "*.pfx", "*.pkcs12", "*.ppk", "*.jks", "*.keystore", "*.kdb", "*.kdbx"),
    *("*.ovpn", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*_rsa", "*_dsa", "*_ecdsa", "*_ed25519"),
    # databases, and what shells have been told
    *(".pgpass", "pgpass.conf", ".my.cnf", ".mylogin.cnf", ".*_history"),
)
_PATTERNS = "|".join(re.escape(name).replace(r"\*", "[^/]*").replace(r"\$", r"\Z") for name in _FILES)
# Compiled where a name is first looked at, since the command line starts more often than it looks at one.
_SECRET_PATH = rf"/(?:{_PATTERNS})(?:/|\Z)"
# Without a module of such a name, the project would not run.
_CODE = r"\.(py|pyi|ipynb|md|rst|c|cc|cpp|cu|h)\Z"

# Words between underscores, or humps, and what may follow them.
_NAMES_OF_SECRETS = r"""(?x)
    (?:^|_)(?:
        [A-Z]*SECRETS? | [A-Z]*PASSWORDS? | PASSWD | PASSPHRASE | PASSCODE | CREDENTIALS? | CREDS? | JWT | SSHPASS
      | [A-Z]*(?:API|ACCESS|AUTH|SECRET|PRIVATE|SERVICE|ACCOUNT|ENCRYPTION|SIGNING|LICENSE)KEY | PRIVKEY
      | (?:KEY|APP|PRIVATE)_PEM
      # What services and their command lines abbreviate.
      | (?<=_)(?:PW|SK)
      # Django hides every setting with AUTH or KEY in its name. Here they count as last words, but for keys of data.
      | (?<=_)(?<!CACHE_)(?<!SORT_)(?<!PRIMARY_)(?<!FOREIGN_)(?<!PUBLIC_)(?<!LABEL_)(?<!IMAGE_)(?<!TEXT_)(?<!INPUT_)
        (?<!OUTPUT_)(?<!TARGET_)(?<!DATA_)(?<!FEATURE_)(?<!METRIC_)(?<!LOSS_)(?<!STATE_)(?<!GROUP_)(?<!COLUMN_)
        (?<!FIELD_)(?<!DICT_)(?<!CONFIG_)(?<!PROMPT_)(?<!RESPONSE_)(?<!QUERY_)(?<!PARTITION_)(?<!MODEL_)(?<!JOIN_)KEY
      | (?<=_)(?<!USE_)(?<!NO_)(?<!ENABLE_)(?<!DISABLE_)(?<!SKIP_)(?<!REQUIRE_)AUTH(?:_CONFIG)?
      | (?<!PAD_)(?<!EOS_)(?<!BOS_)(?<!SOS_)(?<!EOT_)(?<!UNK_)(?<!MASK_)(?<!SEP_)(?<!CLS_)(?<!PER_)(?<!STOP_)
        (?<!START_)(?<!END_)(?<!NEXT_)(?<!LAST_)(?<!FIRST_)(?<!IMAGE_)(?<!SPECIAL_)(?<!BLANK_)(?<!NUM_)(?<!MAX_)TOKEN
      | (?:GH|GITHUB|GITLAB|BITBUCKET|AZURE|DEVOPS|ATLASSIAN|JIRA|CONFLUENCE|AIRTABLE|EXT|CR|REGISTRY|USER)_PAT
      | PWD | BEARER | BASIC_AUTH | AUTHORIZATION
      | (?:DB|DATABASE|KEY|USER|ADMIN|ROOT|SMTP|MAIL|EMAIL|FTP|PG|MYSQL|POSTGRES|REDIS|MONGO|LDAP|PROXY|REGISTRY
          |SUDO|VAULT|SSH|HTTP|BIND|CONFIG|RCLONE|RESTIC|WIFI|API|LOGIN)_?PASS
      | DSN | WEBHOOK | WEBHOOK_URL | CONNECTION_STRING | CONN_STR
      | (?:DB|DATABASE|REDIS|MONGO|MONGODB|POSTGRES|POSTGRESQL|PG|MYSQL|AMQP|RABBITMQ|BROKER|CELERY)_(?:URL|URI)
    )
    (?:_(?:ID|VALUE|BASE64|B64|JSON|PROD|DEV|TEST|STAGING|OLD|NEW|PRIMARY|SECONDARY|\d+))*\Z
"""
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Folders, and the path of a file.
_HARMLESS = ("PWD", "OLDPWD", "GOOGLE_APPLICATION_CREDENTIALS")


def is_secret_variable(name: str) -> bool:
    """Return whether the value of an environment variable of this name is probably a secret."""
    return name not in _HARMLESS and re.search(_NAMES_OF_SECRETS, _HUMP.sub("_", name).upper()) is not None


def is_code(path: str) -> bool:
    """Return whether a file is source code or its description, by its name."""
    return re.search(_CODE, path) is not None


def is_secret_file(path: str) -> bool:
    """Return whether the file `path`, relative with slashes, probably holds a secret, by its name and its folders'."""
    if is_code(path):
        path = "/".join(folder for folder in path.split("/")[:-1] if folder.startswith("."))
        if not path:
            return False  # without compiling what looks for them
    return re.search(_SECRET_PATH, "/" + path.lower()) is not None


# Keys that services hand out, by their beginnings.
_KEYS = (
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|"
    r"AKIA[A-Z0-9]{12,}|wandb_v\d_\w{16,}|glpat-[\w-]{16,}|xox[abp]-[\w-]{10,})"
)
# The long number is what `ray start` takes where it is given no password of Redis's.
_PLACEHOLDERS = (
    r"(?i)(?:/|~|\./|file:|\$).*|.*(?:<|\.\.\.|\*\*\*|x{4,}|changeme|placeholder|dummy|example).*|none|null|empty|"
    r"false|true|basic|5241590000000000|(?:your|my|insert|replace|fill|todo|put)[-_ ].*|.*[-_ ]here|.{0,4}"
)


def is_placeholder(value: str) -> bool:
    """Return whether what stands for a secret is none: a word to be replaced, a path, a switch, or too short."""
    return re.fullmatch(_PLACEHOLDERS, value) is not None


def keys_in(text: str) -> List[str]:
    """Return the keys in a text, as services hand them out."""
    return re.findall(_KEYS, text)


def holds_secret(text: str) -> bool:
    """Return whether a text holds a key as services hand them out."""
    return re.search(_KEYS, text) is not None and not is_placeholder(text.rpartition("=")[2])
