
# Completes the part behind the colon of IMAGE:/PATH by what is in the image.
function __extant_in_image
    set -l word (commandline -ct)
    string match -q -- '?*:/*' $word; or return
    set -l above (string replace -r '[^/]*$' '' -- $word)
    for name in (extant ls -ap $above 2>/dev/null)
        echo $above$name
    end
end
complete -c extant -n "string match -q -- '?*:/*' (commandline -ct)" -f -a "(__extant_in_image)"
