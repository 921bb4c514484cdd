# To be sourced: . set_env.sh
# The folder of this file; shells other than bash and zsh have to be in it, or name it themselves.
if [ -n "${BASH_SOURCE:-}" ]; then
  _backops_cann=$(cd "$(dirname "${BASH_SOURCE}")" && pwd)
elif [ -n "${ZSH_VERSION:-}" ]; then
  _backops_cann=$(cd "$(dirname "$0")" && pwd)
else
  _backops_cann=${ASCEND_HOME_PATH:-$PWD}
fi
export ASCEND_HOME_PATH="$_backops_cann"
export ASCEND_TOOLKIT_HOME="$_backops_cann"
export LD_LIBRARY_PATH="$_backops_cann/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
unset _backops_cann
