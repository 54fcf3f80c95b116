"""`token`: the tokens of the daemon's clients. They are printed once, and never taken from a command line."""

import argparse
import os
import sys

from proxy.cli.common import checked_profiles, settings, token_file
from proxy.errors import ConfigError
from proxy.guard.tokens import TokenFile


def run(options: argparse.Namespace) -> int:
    """Make, list or revoke; raises ConfigError."""
    tokens = TokenFile(token_file(os.environ))
    if options.action != "list" and not options.name:
        raise ConfigError(f"name the token: narrow-waist token {options.action} NAME")
    if options.action == "create":
        wanted = [*(options.opens or ()), *(options.profile or ())]
        profiles = tuple(checked_profiles(wanted, settings(options).profiles)) if wanted else ()
        first = not tokens.path.exists()
        print(tokens.create(options.name, profiles))
        sys.stderr.write(f"kept as a hash in {tokens.path}; the token itself is shown only this once\n")
        if first:
            sys.stderr.write("every daemon of yours that starts from now on lets in nobody without a token\n")
    elif options.action == "revoke":
        tokens.revoke(options.name)
        print(f"{options.name} is revoked")
        if not tokens.read():
            sys.stderr.write(f"no token is left: nobody gets in; delete {tokens.path} to serve without\n")
    else:
        for name, token in sorted(tokens.read().items()):
            print(f"{name}  {', '.join(token.profiles) or 'all profiles'}  {token.created}")
    return 0
