#!/usr/bin/python3
"""Write the completion of reseat's command line for bash, from what it says of itself: completion.py RESEAT

Other shells execute the same script: with a line as its argument it prints what completes that (completion.zsh, completion.fish)."""

import json
import re
import shlex
import subprocess
import sys

# What is offered for an argument, by what it is called: words, or a function of the script below.
OFFERED = {
    "APP": "$(_reseat_names programs)",
    "DEVICE": "$(_reseat_names devices)",
    "FILE": ":files",
    "FOLDER": ":folders",
    "SERVER": "$(_reseat_names servers)",
    "TRACE": ":folders\nsynthetic",
    "PROGRAM": ":programs",
    "WAY": "upgrade\nspill\nwait\nsuspend",
}

SCRIPT = r"""# Completion of reseat's command line in bash; made from what reseat says of itself.
_reseat_names() {
    "$command" complete "$1" 2>/dev/null
}

# The options of a verb, and what is offered for each of its arguments.
_reseat_verb() {
    case $1 in
@VERBS@
        *) return 1 ;;
    esac
}

# What is offered for the value of an option: fails where it has none.
_reseat_value() {
    case $1 in
@VALUES@
        *) return 1 ;;
    esac
}

_reseat_offer() { # LINES WORD: what of these begins with it; of a list, behind its last comma
    local offered before=""
    [[ $2 == *,* ]] && before=${2%,*},
    while IFS= read -r offered; do
        case $offered in
            "") ;;
            :*)
                compopt -o filenames 2>/dev/null
                mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(
                    case $offered in
                        :files) compgen -f -- "$2" ;;
                        :folders) compgen -d -- "$2" ;;
                        *) { compgen -c -- "$2"; [[ $2 == */* ]] && compgen -f -- "$2"; } | sort -u ;;
                    esac
                )
                ;;
            *)
                offered=$before$offered
                [[ $offered == "$2"* ]] || continue
                [[ $offered == *[!A-Za-z0-9_.,:/=+-]* ]] && offered=$(printf "${_reseat_format:-%q}" "$offered")
                COMPREPLY+=("$offered")
                ;;
        esac
    done <<<"$1"
}

_reseat() {
    local command=$1 line=${COMP_LINE:0:COMP_POINT} current verb word waiting="" plain="" index=0 stem i
    local options repeats=""
    local -a words arguments
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    current=${words[-1]}
    COMPREPLY=()
    if [[ ${words[1]} == --user ]] && ((${#words[@]} > 2)); then
        if ((${#words[@]} == 3)); then
            mapfile -t COMPREPLY < <(compgen -u -- "$current")
            return
        fi
        words=("${words[0]}" "${words[@]:3}")
    fi
    if ((${#words[@]} < 3)); then
        _reseat_offer "@NAMES@" "$current"
        return
    fi
    verb=${words[1]}
    i=2
    if ! _reseat_verb "$verb"; then
        verb="$verb ${words[2]}"
        i=3
        if ((${#words[@]} == 3)); then
            _reseat_offer "$(_reseat_value "${words[1]}")" "$current"
            return
        fi
        _reseat_verb "$verb" || return
    fi
    for word in "${words[@]:i:${#words[@]}-i-1}"; do
        if [[ -n $waiting ]]; then
            waiting=""
        elif [[ -z $plain && $word == -* ]]; then
            [[ $word == -- ]] && plain=1
            [[ $word != *=* ]] && _reseat_value "$verb $word" >/dev/null && waiting="$verb $word"
        else
            [[ ${arguments[index]} == :programs ]] && arguments[index + 1]=:files && plain=1
            ((index++))
        fi
    done
    # What stands before the last of these is no part of the word for bash.
    stem=${current%"${current##*[=:]}"}
    if [[ -n $waiting ]]; then
        _reseat_offer "$(_reseat_value "$waiting")" "$current"
    elif [[ -z $plain && $current == --*=* ]]; then
        _reseat_offer "$(_reseat_value "$verb ${current%%=*}")" "${current#*=}"
        return
    elif [[ -z $plain && $current == -* ]]; then
        _reseat_offer "$options" "$current"
    else
        [[ -n $plain$repeats ]] && ((index >= ${#arguments[@]})) && index=$((${#arguments[@]} - 1))
        _reseat_offer "${arguments[index]}" "$current"
    fi
    [[ -n $stem ]] && COMPREPLY=("${COMPREPLY[@]#"$stem"}")
}

if [[ ${BASH_SOURCE[0]} != "$0" ]]; then
    complete -F _reseat reseat
else
    _reseat_format=%s COMP_LINE=$1 COMP_POINT=${#1}
    _reseat "${1%% *}"
    begun=${1##* }
    [[ $begun == --*=* ]] && begun=${begun%%=*}= || begun=${begun%"${begun##*[=:]}"}
    for offered in "${COMPREPLY[@]}"; do
        [[ -d $offered ]] && offered+=/
        printf '%s%s\n' "$begun" "$offered"
    done
fi
"""


def offered(argument, verbs):
    """What is offered for "[DEVICE|none]"."""
    words = []
    for part in re.split(r"\|", argument.strip("[].")):
        name = re.sub(r"\[.*", "", part)
        if name == "COMMAND":
            words += names(verbs)
        elif name.islower():
            words.append(name)
        elif name in OFFERED:
            words.append(OFFERED[name])
    return "\n".join(words)


def names(verbs):
    return list(dict.fromkeys(verb["name"].split()[0] for verb in verbs))


def main():
    said = subprocess.run([sys.argv[1], "help", "--json"], check=True, capture_output=True)
    verbs = json.loads(said.stdout)["verbs"]
    rows, values = [], {}
    for verb in verbs:
        options = ["--" + row["name"] for row in verb["options"]] + ["--json"] * verb["json"] + ["--help"]
        arguments = [offered(word, verbs) for word in verb["arguments"].split() if word != "[ARG...]"]
        quoted = " ".join(f'"{word}"' for word in arguments)
        repeats = "1" * verb["arguments"].endswith("DEVICE...]")
        rows.append(f"        {shlex.quote(verb['name'])}) options={shlex.quote(chr(10).join(options))} arguments=({quoted}) repeats={repeats} ;;")
        for row in verb["options"]:
            if row["argument"] and not row["argument"].startswith("["):
                values[f"{verb['name']} --{row['name']}"] = offered(row["argument"], verbs)
        if " " in verb["name"]:
            first, second = verb["name"].split()
            values[first] = (values.get(first, "") + "\n" + second).strip()
    script = SCRIPT.replace("@NAMES@", "\n".join(names(verbs) + ["--user"]))
    script = script.replace("@VERBS@", "\n".join(rows))
    script = script.replace("@VALUES@", "\n".join(f'        {shlex.quote(name)}) echo "{words}" ;;' for name, words in values.items()))
    sys.stdout.write(script)


if __name__ == "__main__":
    main()
