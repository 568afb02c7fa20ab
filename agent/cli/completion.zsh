#compdef reseat
# Completion of reseat's command line in zsh: bash is asked.
local -a offered
offered=(${(f)"$(bash ${functions_source[_reseat]:A:h}/../../bash-completion/completions/reseat.bash \
    "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)"})
compadd -- ${offered:#*/}
compadd -S '' -- ${(M)offered:#*/}
