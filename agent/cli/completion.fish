# Completion of reseat's command line in fish: bash is asked.
set -l script (string escape (dirname (status filename))/../../bash-completion/completions/reseat.bash)
complete -c reseat -f -a "(bash $script (commandline -cp | string trim -l) 2>/dev/null)"
