
# Completes the part behind the colon of IMAGE:/PATH by what is in the image.
_extant_in_image() {
    local word=${COMP_LINE:0:COMP_POINT} image dir name
    word=${word##*[[:space:]]}
    [[ $word == ?*:/* ]] || return 1
    image=${word%%:/*} dir=/${word#*:/}
    dir=${dir%/*}/
    COMPREPLY=()
    while IFS= read -r name; do
        # The shell takes what is behind a colon for a word of its own.
        [[ $name == "${word##*/}"* ]] && COMPREPLY+=("$dir$name")
    done < <(extant ls -ap "$image:$dir" 2>/dev/null)
    [[ ${COMPREPLY[0]} == */ ]] && compopt -o nospace
    return 0
}
