
# Completes the part behind the colon of IMAGE:/PATH by what is in the image.
_extant_in_image() {
    [[ $PREFIX == ?*:/* ]] || return 1
    local image=${PREFIX%%:/*} dir=/${PREFIX#*:/}
    dir=${dir%/*}/
    local -a names
    names=(${(f)"$(extant ls -ap ${(Q)image}:${(Q)dir} 2>/dev/null)"})
    compset -P "*/"
    compadd -S '' -- $names
}
