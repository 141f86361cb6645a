#!/bin/sh
# Make sure of the programs that the tests run beside Python: Java 17 or newer, Maven, kcat, and on Linux ip for network
# faults, strace to count system calls, Prometheus to read metrics, a Kerberos (a KDC, kinit, and what the package
# gssapi is built with), and a Chromium with its driver, which looks at the console.
# What is missing is installed where that needs no question (root with apt-get, or Homebrew);
# elsewhere it is named, with the command to type.
set -eu

java_release() {
    # "17.0.15" and "24-ea" name the release first; before Java 9 it was "1.8.0".
    java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1
}

kerberos() {
    for program in krb5kdc kadmin.local; do  # which are where only root looks
        PATH="$PATH:/usr/sbin" command -v "$program" >/dev/null || printf '%s ' "$program"
    done
    for program in kinit krb5-config gcc; do
        command -v "$program" >/dev/null || printf '%s ' "$program"
    done
    headers=$("${PYTHON:-python3}" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [ -e "$headers/Python.h" ] || printf 'python-headers '
    # kcat's librdkafka speaks GSSAPI through a plug-in of SASL.
    ls /usr/lib/*/sasl2/libgssapiv2.so /usr/lib*/sasl2/libgssapiv2.so 2>/dev/null | grep -q . || printf 'sasl-gssapi '
}

missing() {
    release=$(java_release || true)
    [ "${release:-0}" -ge 17 ] || printf 'java '
    command -v mvn >/dev/null || printf 'mvn '
    command -v kcat >/dev/null || printf 'kcat '
    [ "$(uname)" != Linux ] || command -v chromium >/dev/null || command -v google-chrome >/dev/null || printf 'chromium '
    [ "$(uname)" != Linux ] || command -v chromedriver >/dev/null || printf 'chromedriver '
    [ "$(uname)" != Linux ] || command -v ip >/dev/null || printf 'ip '
    [ "$(uname)" != Linux ] || command -v strace >/dev/null || printf 'strace '
    [ "$(uname)" != Linux ] || command -v promtool >/dev/null || printf 'promtool '
    [ "$(uname)" != Linux ] || kerberos
}

# The package that brings program $1, in the words of package manager $2.
package() {
    case "$2-$1" in
        apt-java) apt_java ;;
        brew-java) echo openjdk@17 ;;
        *-java) echo java-17-openjdk-headless ;;
        *-mvn) echo maven ;;
        *-kcat) echo kcat ;;
        *-strace) echo strace ;;
        *-chromium) echo chromium ;;
        apt-chromedriver) echo chromium-driver ;;
        *-chromedriver) echo chromedriver ;;
        apt-promtool) echo prometheus ;;
        *-promtool) echo golang-github-prometheus ;;
        apt-krb5kdc) echo krb5-kdc ;;
        apt-kadmin.local) echo krb5-admin-server ;;
        apt-kinit) echo krb5-user ;;
        apt-krb5-config) echo libkrb5-dev ;;
        apt-gcc) echo gcc libc6-dev ;;
        apt-python-headers) echo python3-dev ;;
        apt-sasl-gssapi) echo libsasl2-modules-gssapi-mit ;;
        *-krb5kdc | *-kadmin.local) echo krb5-server ;;
        *-kinit) echo krb5-workstation ;;
        *-krb5-config) echo krb5-devel ;;
        *-sasl-gssapi) echo cyrus-sasl-gssapi ;;
        *-gcc) echo gcc ;;
        *-python-headers) echo python3-devel ;;
        apt-ip) echo iproute2 ;;
        *-ip) echo iproute ;;
    esac
}

# Releases of Debian and Ubuntu carry different Javas; 17 is preferred because the tests are run with it.
apt_java() {
    for release in 17 21 25; do
        if apt-cache show "openjdk-$release-jre-headless" >/dev/null 2>&1; then
            echo "openjdk-$release-jre-headless"
            return
        fi
    done
    echo default-jre-headless
}

packages() {
    for program in $1; do package "$program" "$2"; done | tr '\n' ' '
}

wanted=$(missing)
[ -n "$wanted" ] || exit 0

if command -v apt-get >/dev/null; then
    if [ "$(id -u)" = 0 ]; then
        apt-get -o Acquire::Retries=5 update -qq
        # shellcheck disable=SC2046  # several packages, several words
        DEBIAN_FRONTEND=noninteractive \
            apt-get -o Acquire::Retries=5 install -y -qq --no-install-recommends $(packages "$wanted" apt)
    else
        advice="sudo apt-get install $(packages "$wanted" apt)"
    fi
elif command -v brew >/dev/null; then
    # shellcheck disable=SC2046
    brew install $(packages "$wanted" brew)
    # Homebrew keeps its Java out of the PATH; Maven finds it, `java` needs the link.
    advice="sudo ln -sfn $(brew --prefix)/opt/openjdk@17/libexec/openjdk.jdk /Library/Java/JavaVirtualMachines/openjdk-17.jdk"
elif command -v dnf >/dev/null; then
    advice="sudo dnf install $(packages "$wanted" dnf)"
else
    advice="install with your system's packages: $(packages "$wanted" other)"
fi

wanted=$(missing)
[ -n "$wanted" ] || exit 0
echo "The tests need what this machine lacks: ${wanted}(Java 17 or newer, Maven, kcat, ip, strace, Prometheus, Kerberos, Chromium)." >&2
echo "Type: ${advice:-install $wanted by hand}" >&2
exit 1
