/* SPDX-License-Identifier: MIT */
/* completion.c - completion scripts for shells, made from the table of verbs.
 *
 * WHY   A script must read the command line as vow does: the word after an
 *       option with a value is no command, and after the command no word is an
 *       option of vow.
 * HOW   bash and fish get a function for walking the words, and the table as a
 *       function for the options with values. zsh has both in _arguments. After
 *       the options the shell completes the command as usual, and files after
 *       :::. For verbs with a NAME the script offers the names of the store
 *       (vow status --names VERB, which ends within a second), and programs
 *       only after --.
 */
#include "options.h"

#include <string.h>

static void put_bash(FILE *out);
static void put_bash_options(FILE *out, const struct verb_def *verb);
static void put_bash_values(FILE *out, const struct verb_def *verb);
static void put_zsh(FILE *out);
static void put_zsh_option(FILE *out, const struct option_def *def);
static void put_zsh_message(FILE *out, const char *s);
static void put_zsh_action(FILE *out, const struct option_def *def);
static void put_fish(FILE *out);
static void put_fish_verb(FILE *out, const char *name, const char *about);
static void put_fish_option(FILE *out, const struct verb_def *verb,
                            const struct option_def *def);
static void put_spellings(FILE *out, const struct verb_def *verb,
                          const struct option_def *def, const char *before,
                          const char *between);
static void put_verbs(FILE *out);
static bool is_listed_verb(const char *name);
static void put_escaped(FILE *out, const char *s, const char *special,
                        const char *quote);
static bool option_takes_value(const struct option_def *def);
static const struct option_def *first_option(const struct verb_def *verb);
static bool words_are_kind(const struct option_def *def, const char *kind);

/* Offered even if they are not in the table of verbs. */
static const struct {
    const char *name;
    const char *about;
} own_verbs[] = {{"completion", "print a completion script"},
                 {"help", "show help for vow or a command"},
                 {NULL, NULL}};

bool options_completion(FILE *out, const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        put_bash(out);
    else if (strcmp(shell, "zsh") == 0)
        put_zsh(out);
    else if (strcmp(shell, "fish") == 0)
        put_fish(out);
    else
        return false;
    return true;
}

static const char bash_functions[] =
    "_vow_words() {\n"
    "    mapfile -t COMPREPLY < <(compgen -W \"$1\" -P \"$prefix\" -- "
    "\"$cur\")\n"
    "}\n"
    "\n"
    "_vow_files() {\n"
    "    mapfile -t COMPREPLY < <(compgen \"$@\" -P \"$prefix\" -- \"$cur\")\n"
    "    compopt -o filenames 2> /dev/null\n"
    "}\n"
    "\n"
    "_vow_value_words() {\n"
    "    case $value in\n"
    "    '' | -) compopt +o default +o bashdefault 2> /dev/null ;;\n"
    "    FILE) _vow_files -f ;;\n"
    "    DIR) _vow_files -d ;;\n"
    "    COMMAND) _vow_files -c ;;\n"
    "    *) _vow_words \"$value\" ;;\n"
    "    esac\n"
    "}\n"
    "\n"
    "# The names that the verb could be given; programs and files are not.\n"
    "_vow_names() {\n"
    "    local i name names store=()\n"
    "    compopt +o default +o bashdefault 2> /dev/null\n"
    "    for ((i = 2; i < last; i++)); do\n"
    "        case ${words[i]} in\n"
    "        --store) store=(--store \"${words[i + 1]}\") ;;\n"
    "        --store=*) store=(\"${words[i]}\") ;;\n"
    "        esac\n"
    "    done\n"
    "    mapfile -t names < <(\"${words[0]}\" status --names \"$verb\" \\\n"
    "        \"${store[@]}\" 2> /dev/null < /dev/null)\n"
    "    for name in \"${names[@]}\"; do\n"
    "        [[ $name == \"$cur\"* ]] && COMPREPLY+=(\"$name\")\n"
    "    done\n"
    "}\n"
    "\n"
    "# The command begins at words[$1].\n"
    "_vow_command() {\n"
    "    local i function\n"
    "    for ((i = $1; i < last; i++)); do\n"
    "        [[ ${words[i]} != ::: && ${words[i]} != :::: ]] && continue\n"
    "        _vow_files -f\n"
    "        return\n"
    "    done\n"
    "    if (($1 == last)); then\n"
    "        _vow_files -c\n"
    "        ((${#COMPREPLY[@]})) || _vow_files -f\n"
    "        return\n"
    "    fi\n"
    "    for function in _comp_command_offset _command_offset; do\n"
    "        declare -F $function > /dev/null || continue\n"
    "        before=\n"
    "        $function \"${starts[$1]}\"\n"
    "        return\n"
    "    done\n"
    "    _vow_files -f\n"
    "}\n"
    "\n"
    "# bash splits words at = and : too; the blanks of the line tell how they "
    "were.\n"
    "_vow_join() {\n"
    "    local i word gap line=$COMP_LINE\n"
    "    for ((i = 0; i <= COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]} gap=${line%%[![:space:]]*}\n"
    "        line=${line#\"$gap\"}\n"
    "        line=${line#\"$word\"}\n"
    "        if [[ $i -gt 0 && -n $COMP_LINE && -z $gap ]]; then\n"
    "            words[last]+=$word\n"
    "        else\n"
    "            last=${#words[@]}\n"
    "            words[last]=$word starts[last]=$i\n"
    "        fi\n"
    "    done\n"
    "    [[ $word == *[!=:]* ]] || word=\n"
    "    before=${words[last]%\"$word\"}\n"
    "}\n"
    "\n"
    "# Sets value to what the option in $1 wants from the next word; empty: "
    "nothing.\n"
    "_vow_wants() {\n"
    "    local n\n"
    "    value=\n"
    "    case $1 in\n"
    "    --*=*) ;;\n"
    "    --*) _vow_value \"$verb $1\" ;;\n"
    "    *)\n"
    "        for ((n = 1; n < ${#1}; n++)); do\n"
    "            _vow_value \"$verb -${1:n:1}\"\n"
    "            [[ -z $value ]] || break\n"
    "        done\n"
    "        ((n + 1 >= ${#1})) || value=\n"
    "        ;;\n"
    "    esac\n"
    "}\n"
    "\n"
    "_vow_complete() {\n"
    "    local i named= operands\n"
    "    if ((last < 2)); then\n"
    "        _vow_words \"$verbs --help --version\"\n"
    "        return\n"
    "    fi\n"
    "    _vow_operands \"$verb\"\n"
    "    for ((i = 2; i < last; i++)); do\n"
    "        value=\n"
    "        case $operands:${words[i]} in\n"
    "        *COMMAND:--)\n"
    "            _vow_command $((i + 1))\n"
    "            return\n"
    "            ;;\n"
    "        *:-?*) _vow_wants \"${words[i]}\" ;;\n"
    "        COMMAND:*)\n"
    "            _vow_command $i\n"
    "            return\n"
    "            ;;\n"
    "        *) named=1 ;;\n"
    "        esac\n"
    "        [[ -z $value ]] || ((++i))\n"
    "    done\n"
    "    if ((i > last)); then\n"
    "        _vow_value_words\n"
    "        return\n"
    "    fi\n"
    "    case $verb:$cur in\n"
    "    *:--*=*)\n"
    "        prefix=${cur%%=*}= cur=${cur#*=}\n"
    "        _vow_value \"$verb ${prefix%=}\"\n"
    "        [[ -n $value ]] || _vow_value \"$verb $prefix\"\n"
    "        _vow_value_words\n"
    "        ;;\n"
    "    *:-*) _vow_more_options ;;\n"
    "    help:*) _vow_words \"$verbs\" ;;\n"
    "    completion:*) _vow_words 'bash zsh fish' ;;\n"
    "    *)\n"
    "        case $operands:$named in\n"
    "        COMMAND:*)\n"
    "            _vow_command \"$last\"\n"
    "            return\n"
    "            ;;\n"
    "        NAME*:) _vow_names ;;\n"
    "        esac\n"
    "        [[ -n $cur ]] || _vow_more_options\n"
    "        ;;\n"
    "    esac\n"
    "}\n"
    "\n"
    "_vow_more_options() {\n"
    "    local offered=(\"${COMPREPLY[@]}\")\n"
    "    compopt +o default +o bashdefault 2> /dev/null\n"
    "    _vow_options \"$verb\"\n"
    "    [[ $operands:$named == 'NAME COMMAND:1' ]] && options=\"-- "
    "$options\"\n"
    "    _vow_words \"$options\"\n"
    "    COMPREPLY+=(\"${offered[@]}\")\n"
    "}\n"
    "\n"
    "_vow() {\n"
    "    local words=() starts=() last=0 before prefix value options\n"
    "    COMPREPLY=()\n"
    "    _vow_join\n"
    "    local verb=${words[1]} cur=${words[last]} verbs\n"
    "    _vow_options ''\n"
    "    verbs=$options\n"
    "    _vow_complete\n"
    "    COMPREPLY=(\"${COMPREPLY[@]#\"$before\"}\")\n"
    "}\n"
    "\n"
    "complete -o bashdefault -o default -F _vow vow\n";

static const char zsh_functions[] =
    "# VERB OPERANDS...\n"
    "_vow_names() {\n"
    "    if ((${words[(i)--]} < CURRENT)); then\n"
    "        [[ $3 != COMMAND ]] || _vow_behind\n"
    "        return\n"
    "    fi\n"
    "    local i=${words[(I)--store(|=*)]}\n"
    "    local -a names store\n"
    "    ((i > 0)) && store=($words[i])\n"
    "    [[ $store == --store ]] && store+=($words[i+1])\n"
    "    names=(${(f)\"$(vow status --names $1 $store 2> /dev/null < "
    "/dev/null)\"})\n"
    "    (($#names)) && compadd -a names\n"
    "}\n"
    "\n"
    "# Behind the name: a command, if it stands behind --.\n"
    "_vow_behind() {\n"
    "    local i=${words[(i)--]}\n"
    "    if ((i < CURRENT)); then\n"
    "        shift $i words\n"
    "        ((CURRENT -= i))\n"
    "        _normal\n"
    "    else\n"
    "        compadd -- --\n"
    "    fi\n"
    "}\n"
    "\n"
    "_vow_arguments() {\n"
    "    if ((${words[(I):::(:|)]} > 0 && ${words[(I):::(:|)]} < CURRENT)); "
    "then\n"
    "        _files\n"
    "    else\n"
    "        _normal\n"
    "    fi\n"
    "}\n"
    "\n"
    "_vow() {\n"
    "    local verb=$words[2]\n"
    "    if ((CURRENT == 2)); then\n"
    "        _vow_verbs\n"
    "        return\n"
    "    fi\n"
    "    shift words\n"
    "    ((CURRENT--))\n"
    "    case $verb in\n"
    "    help) _arguments ': :_vow_verbs' ;;\n"
    "    completion) _arguments ':shell:(bash zsh fish)' ;;\n"
    "    *) _vow_options $verb ;;\n"
    "    esac\n"
    "}\n"
    "\n"
    "if [[ $funcstack[1] == _vow ]]; then\n"
    "    _vow \"$@\"\n"
    "else\n"
    "    compdef _vow vow\n"
    "fi\n";

static const char fish_functions[] =
    "# Prints where the cursor is (verb, option, named: behind a name, value "
    "or\n"
    "# command), the verb, and the words of the command before the cursor.\n"
    "function __vow_place\n"
    "    set -l words (commandline -opc)\n"
    "    set -l verb $words[2]\n"
    "    set -e words[1..2]\n"
    "    set -l value no\n"
    "    set -l place option\n"
    "    if test -z \"$verb\"\n"
    "        echo verb\n"
    "        return\n"
    "    end\n"
    "    while set -q words[1]\n"
    "        set -l word $words[1]\n"
    "        if test $value = yes\n"
    "            set value no\n"
    "            set -e words[1]\n"
    "            continue\n"
    "        end\n"
    "        switch $word\n"
    "            case --\n"
    "                set -e words[1]\n"
    "                string match -q '*COMMAND' (__vow_operands $verb)\n"
    "                and printf '%s\\n' command $verb $words\n"
    "                or printf '%s\\n' $place $verb\n"
    "                return\n"
    "            case '--*=*'\n"
    "            case '--*'\n"
    "                __vow_takes $verb $word; and set value yes\n"
    "            case '-?*'\n"
    "                set value (__vow_letters $verb $word)\n"
    "            case '*'\n"
    "                if test (__vow_operands $verb) = COMMAND\n"
    "                    printf '%s\\n' command $verb $words\n"
    "                    return\n"
    "                end\n"
    "                set place named\n"
    "        end\n"
    "        set -e words[1]\n"
    "    end\n"
    "    test $value = yes; and echo value; or echo $place\n"
    "    echo $verb\n"
    "end\n"
    "\n"
    "# Whether the last of several letters takes its value from the next "
    "word.\n"
    "function __vow_letters\n"
    "    set -l letters (string split '' -- (string sub -s 2 -- $argv[2]))\n"
    "    while set -q letters[1]\n"
    "        if __vow_takes $argv[1] -$letters[1]\n"
    "            test (count $letters) -eq 1; and echo yes; or echo no\n"
    "            return\n"
    "        end\n"
    "        set -e letters[1]\n"
    "    end\n"
    "    echo no\n"
    "end\n"
    "\n"
    "function __vow_at # VERB\n"
    "    set -l place (__vow_place)\n"
    "    contains -- $place[1] option named value\n"
    "    and test \"$place[2]\" = $argv[1]\n"
    "end\n"
    "\n"
    "function __vow_at_verb\n"
    "    test (__vow_place)[1] = verb\n"
    "end\n"
    "\n"
    "function __vow_at_command\n"
    "    set -l place (__vow_place)\n"
    "    switch $place[1]\n"
    "        case option\n"
    "            not contains -- $place[2] help completion\n"
    "            and test (__vow_operands $place[2]) = COMMAND\n"
    "            and not string match -q -- '-*' (commandline -ct)\n"
    "        case command\n"
    "            return 0\n"
    "        case '*'\n"
    "            return 1\n"
    "    end\n"
    "end\n"
    "\n"
    "function __vow_at_name # PLACE OPERANDS...\n"
    "    set -l place (__vow_place)\n"
    "    test $place[1] = $argv[1]; and contains -- (__vow_operands $place[2]) "
    "$argv[2..-1]\n"
    "end\n"
    "\n"
    "function __vow_names\n"
    "    set -l words (commandline -opc)\n"
    "    set -l store (string match -- '--store=*' $words)\n"
    "    set -l at (contains -i -- --store $words)\n"
    "    and set store --store $words[(math $at + 1)]\n"
    "    command $words[1] status --names $words[2] $store 2>/dev/null "
    "</dev/null\n"
    "end\n"
    "\n"
    "function __vow_command\n"
    "    set -l place (__vow_place)\n"
    "    set -l word (commandline -ct)\n"
    "    set -e place[1..2]\n"
    "    if contains -- ::: $place; or contains -- :::: $place\n"
    "        set place ls --\n"
    "    end\n"
    "    complete -C (string join ' ' -- (string escape -- $place) \"$word\")\n"
    "end\n"
    "\n"
    "complete -c vow -e\n"
    "complete -c vow -f\n"
    "complete -c vow -n __vow_at_command -a '(__vow_command)'\n"
    "complete -c vow -n '__vow_at_name option NAME \"NAME COMMAND\"' -a "
    "'(__vow_names)'\n"
    "complete -c vow -n '__vow_at_name named \"NAME COMMAND\"' -a '\\--'\n"
    "complete -c vow -n '__vow_at completion' -a 'bash zsh fish'\n"
    "complete -c vow -n __vow_at_verb -l help -d 'show the help'\n"
    "complete -c vow -n __vow_at_verb -l version -d 'show the version'\n";

static void put_bash(FILE *out)
{
    fputs("# Completion of vow for bash. To load it:\n"
          "#     source <(vow completion bash)\n\n"
          "# Sets options to those of a verb; of none: to the verbs.\n"
          "_vow_options() {\n"
          "    case $1 in\n"
          "    '') options='",
          out);
    put_verbs(out);
    fputs("' ;;\n", out);
    for (size_t i = 0; verbs[i] != NULL; i++)
        put_bash_options(out, verbs[i]);
    fputs("    *) options='-h --help' ;;\n"
          "    esac\n"
          "}\n\n"
          "# Sets operands to what a verb takes besides options.\n"
          "_vow_operands() {\n"
          "    case $1 in\n",
          out);
    for (size_t i = 0; verbs[i] != NULL; i++)
        if (verbs[i]->operands != NULL)
            fprintf(out, "    %s) operands='%s' ;;\n", verbs[i]->name,
                    verbs[i]->operands);
    fputs("    *) operands=COMMAND ;;\n"
          "    esac\n"
          "}\n\n"
          "# Sets value to what stands behind an option; empty: nothing.\n"
          "_vow_value() {\n"
          "    value=\n"
          "    case $1 in\n",
          out);
    for (size_t i = 0; verbs[i] != NULL; i++)
        put_bash_values(out, verbs[i]);
    fputs("    esac\n}\n\n", out);
    fputs(bash_functions, out);
}

static void put_bash_options(FILE *out, const struct verb_def *verb)
{
    fprintf(out, "    %s) options='-h --help", verb->name);
    for (const struct option_def *d = first_option(verb); d->id != 0; d++) {
        if (d->help != NULL && d->letter != '\0')
            fprintf(out, " -%c", d->letter);
        if (d->help != NULL && d->name != NULL)
            fprintf(out, " --%s", d->name);
    }
    fputs("' ;;\n", out);
}

static void put_bash_values(FILE *out, const struct verb_def *verb)
{
    for (const struct option_def *d = first_option(verb); d->id != 0; d++) {
        if (option_takes_value(d))
            put_spellings(out, verb, d, "    ", " | ");
        else if (d->value != NULL && d->words != NULL)
            fprintf(out, "    '%s --%s='", verb->name, d->name);
        else
            continue;
        fputs(") value='", out);
        put_escaped(out, d->words != NULL ? d->words : "-", "", "'\\''");
        fputs("' ;;\n", out);
    }
}

static void put_zsh(FILE *out)
{
    fputs("#compdef vow\n"
          "# Completion of vow for zsh. To load it, after compinit:\n"
          "#     source <(vow completion zsh)\n"
          "# or write it into a file _vow in a folder of $fpath.\n\n"
          "_vow_verbs() {\n"
          "    local -a verbs=(\n",
          out);
    for (size_t i = 0; verbs[i] != NULL; i++) {
        fprintf(out, "        '%s:", verbs[i]->name);
        put_escaped(out, verbs[i]->about, "", "'\\''");
        fputs("'\n", out);
    }
    for (size_t i = 0; own_verbs[i].name != NULL; i++)
        if (!is_listed_verb(own_verbs[i].name))
            fprintf(out, "        '%s:%s'\n", own_verbs[i].name,
                    own_verbs[i].about);
    fputs("    )\n"
          "    _describe -t verbs verb verbs\n"
          "}\n\n"
          "_vow_options() {\n"
          "    case $1 in\n",
          out);
    for (size_t i = 0; verbs[i] != NULL; i++) {
        const char *operands = verbs[i]->operands;
        fprintf(out, "    %s)\n        _arguments -s -S%s \\\n", verbs[i]->name,
                operands == NULL ? " -A '-*'" : "");
        for (const struct option_def *d = first_option(verbs[i]); d->id != 0;
             d++)
            put_zsh_option(out, d);
        fputs("            '(- *)'{-h,--help}'[show the help]'", out);
        if (operands == NULL)
            fputs(" \\\n            '(-): :_command_names -e'"
                  " \\\n            '(-)*:: :_vow_arguments'",
                  out);
        else if (operands[0] != '\0')
            fprintf(out, " \\\n            ': : _vow_names %s %s'",
                    verbs[i]->name, operands);
        if (operands != NULL && strstr(operands, "COMMAND") != NULL)
            fputs(" \\\n            '*: : _vow_behind'", out);
        fputs("\n        ;;\n", out);
    }
    fputs("    esac\n}\n\n", out);
    fputs(zsh_functions, out);
}

/* Prints '*'{-j+,--jobs=}'[run N at once]:N:(1 2 4)' */
static void put_zsh_option(FILE *out, const struct option_def *def)
{
    bool value = option_takes_value(def);
    bool both = def->letter != '\0' && def->name != NULL;
    fprintf(out, "            '%s*'%s", def->help == NULL ? "!" : "",
            both ? "{" : "");
    if (def->letter != '\0')
        fprintf(out, "-%c%s%s", def->letter, value ? "+" : "", both ? "," : "");
    if (def->name != NULL)
        fprintf(out, "--%s%s%s", def->name,
                value                ? "="
                : def->value != NULL ? "=-"
                                     : "",
                both ? "}" : "");
    fputs("'[", out);
    put_escaped(out, def->help != NULL ? def->help : "", "[]:\\", "'\\''");
    fputs("]", out);
    if (def->value != NULL) {
        fputs(value ? ":" : "::", out);
        put_zsh_message(out, def->value);
        put_zsh_action(out, def);
    }
    fputs("' \\\n", out);
}

/* Prints the form of the value, "N|N%". zsh shows the text like a prompt, in
 * which a percent sign is doubled. */
static void put_zsh_message(FILE *out, const char *s)
{
    for (; *s != '\0'; s++) {
        char one[] = {*s, '\0'};
        put_escaped(out, *s == '%' ? "%%" : one, ":\\", "'\\''");
    }
}

static void put_zsh_action(FILE *out, const struct option_def *def)
{
    if (def->words == NULL)
        fputs(": ", out);
    else if (words_are_kind(def, "FILE"))
        fputs(":_files", out);
    else if (words_are_kind(def, "DIR"))
        fputs(":_files -/", out);
    else if (words_are_kind(def, "COMMAND"))
        fputs(":_command_names -e", out);
    else {
        fputs(":(", out);
        put_escaped(out, def->words, ":\\()", "'\\''");
        fputs(")", out);
    }
}

static void put_fish(FILE *out)
{
    fputs("# Completion of vow for fish. To load it:\n"
          "#     vow completion fish | source\n\n"
          "# VERB OPTION: whether it takes its value from the next word.\n"
          "function __vow_takes\n"
          "    switch \"$argv\"\n",
          out);
    for (size_t i = 0; verbs[i] != NULL; i++)
        for (const struct option_def *d = first_option(verbs[i]); d->id != 0;
             d++)
            if (option_takes_value(d)) {
                put_spellings(out, verbs[i], d, "        case ", " ");
                fputs("\n            return 0\n", out);
            }
    fputs("    end\n    return 1\nend\n\n"
          "# VERB: what it takes besides options.\n"
          "function __vow_operands\n"
          "    switch $argv[1]\n",
          out);
    for (size_t i = 0; verbs[i] != NULL; i++)
        if (verbs[i]->operands != NULL)
            fprintf(out, "        case %s\n            echo '%s'\n",
                    verbs[i]->name, verbs[i]->operands);
    fputs("        case '*'\n            echo COMMAND\n    end\nend\n\n", out);
    fputs(fish_functions, out);
    fputs("complete -c vow -n '__vow_at help' -a '", out);
    put_verbs(out);
    fputs("'\n", out);
    for (size_t i = 0; own_verbs[i].name != NULL; i++)
        if (!is_listed_verb(own_verbs[i].name))
            put_fish_verb(out, own_verbs[i].name, own_verbs[i].about);
    for (size_t i = 0; verbs[i] != NULL; i++) {
        put_fish_verb(out, verbs[i]->name, verbs[i]->about);
        fprintf(out, "complete -c vow -n '__vow_at %s' -s h -l help -d '%s'\n",
                verbs[i]->name, "show the help");
        for (const struct option_def *d = first_option(verbs[i]); d->id != 0;
             d++)
            if (d->help != NULL)
                put_fish_option(out, verbs[i], d);
    }
}

static void put_fish_verb(FILE *out, const char *name, const char *about)
{
    fprintf(out, "complete -c vow -n __vow_at_verb -a %s -d '", name);
    put_escaped(out, about, "\\", "\\'");
    fputs("'\n", out);
}

static void put_fish_option(FILE *out, const struct verb_def *verb,
                            const struct option_def *def)
{
    fprintf(out, "complete -c vow -n '__vow_at %s'", verb->name);
    if (def->letter != '\0')
        fprintf(out, " -s %c", def->letter);
    if (def->name != NULL)
        fprintf(out, " -l %s", def->name);
    if (option_takes_value(def))
        fputs(words_are_kind(def, "FILE") ? " -r -F" : " -x", out);
    if (words_are_kind(def, "DIR"))
        fputs(" -a '(__fish_complete_directories)'", out);
    else if (words_are_kind(def, "COMMAND"))
        fputs(" -a '(__fish_complete_command)'", out);
    else if (def->words != NULL && !words_are_kind(def, "FILE")) {
        fputs(" -a '", out);
        put_escaped(out, def->words, "\\", "\\'");
        fputs("'", out);
    }
    fputs(" -d '", out);
    put_escaped(out, def->help, "\\", "\\'");
    fputs("'\n", out);
}

/* Prints 'map -j' | 'map --jobs' */
static void put_spellings(FILE *out, const struct verb_def *verb,
                          const struct option_def *def, const char *before,
                          const char *between)
{
    fputs(before, out);
    if (def->letter != '\0')
        fprintf(out, "'%s -%c'%s", verb->name, def->letter,
                def->name != NULL ? between : "");
    if (def->name != NULL)
        fprintf(out, "'%s --%s'", verb->name, def->name);
}

static void put_verbs(FILE *out)
{
    for (size_t i = 0; verbs[i] != NULL; i++)
        fprintf(out, "%s%s", i > 0 ? " " : "", verbs[i]->name);
    for (size_t i = 0; own_verbs[i].name != NULL; i++)
        if (!is_listed_verb(own_verbs[i].name))
            fprintf(out, " %s", own_verbs[i].name);
}

static bool is_listed_verb(const char *name)
{
    for (size_t i = 0; verbs[i] != NULL; i++)
        if (strcmp(verbs[i]->name, name) == 0)
            return true;
    return false;
}

/* Prints text between single quotes: with a backslash before each special
 * character, and `quote` for a single quote. */
static void put_escaped(FILE *out, const char *s, const char *special,
                        const char *quote)
{
    for (; *s != '\0'; s++) {
        if (*s == '\'') {
            fputs(quote, out);
            continue;
        }
        if (strchr(special, *s) != NULL)
            fputc('\\', out);
        fputc(*s, out);
    }
}

static bool option_takes_value(const struct option_def *def)
{
    return def->value != NULL && def->value[0] != '[';
}

static const struct option_def *first_option(const struct verb_def *verb)
{
    static const struct option_def none[] = {{.id = 0}};
    return verb->options != NULL ? verb->options : none;
}

static bool words_are_kind(const struct option_def *def, const char *kind)
{
    return def->words != NULL && strcmp(def->words, kind) == 0;
}
