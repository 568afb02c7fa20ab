#!/bin/sh
# Compile Java sources into a jar: jar.sh JAVAC JAR OUTPUT FOLDER SOURCE...
set -eu
javac=$1 jar=$2 output=$3 folder=$4
shift 4
rm -rf "$folder"
"$javac" --release 17 -Xlint:all -Werror -d "$folder" "$@"
printf 'Automatic-Module-Name: reseat.stream\n' > "$folder.manifest"
"$jar" --create --file "$output" --manifest "$folder.manifest" -C "$folder" .
rm "$folder.manifest"
