# Sourced by settings.sh of the methods whose papers train otherwise on ImageNet.
# usage: trained_on "$@"; prints the dataset that a script trains on, or whose training it evaluates.
trained_on() {
    case ${0##*/} in
        xd_*) echo "${SOURCE:-imagenet}" ;;
        *) echo "${1:-}" ;;
    esac
}
