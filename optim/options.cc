#include "lockstep/optim/options.h"

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include <cstddef>
#include <string>

namespace lockstep::optim {
namespace {

class Writer : public OptionVisitor {
 public:
  explicit Writer(torch::serialize::OutputArchive& archive) : archive_(archive) {}

  void Visit(const char* key, Number& value) override {
    archive_.write(key, value.is_tensor() ? c10::IValue(value.tensor()) : c10::IValue(static_cast<double>(value)));
  }
  void Visit(const char* key, double& value) override { archive_.write(key, c10::IValue(value)); }
  void Visit(const char* key, int64_t& value) override { archive_.write(key, c10::IValue(value)); }
  void Visit(const char* key, bool& value) override { archive_.write(key, c10::IValue(value)); }
  void Visit(const char* key, std::optional<bool>& value) override { archive_.write(key, c10::IValue(value)); }
  void Visit(const char* key, std::tuple<double, double>& value) override { archive_.write(key, c10::IValue(value)); }
  void Visit(const char* key, std::tuple<double, double, double>& value) override {
    archive_.write(key, c10::IValue(value));
  }
  void Visit(const char* key, std::tuple<std::optional<double>, double>& value) override {
    archive_.write(key, c10::IValue(value));
  }
  void Visit(const char* key, std::optional<std::string>& value) override { archive_.write(key, c10::IValue(value)); }

 private:
  torch::serialize::OutputArchive& archive_;
};

class Reader : public OptionVisitor {
 public:
  explicit Reader(torch::serialize::InputArchive& archive) : archive_(archive) {}

  void Visit(const char* key, Number& value) override {
    const c10::IValue found = Read(key);
    value = found.isTensor() ? Number(found.toTensor()) : Number(found.toDouble());
  }
  void Visit(const char* key, double& value) override { value = Read(key).toDouble(); }
  void Visit(const char* key, int64_t& value) override { value = Read(key).toInt(); }
  void Visit(const char* key, bool& value) override { value = Read(key).toBool(); }
  void Visit(const char* key, std::optional<bool>& value) override { value = Read(key).toOptional<bool>(); }
  void Visit(const char* key, std::tuple<double, double>& value) override {
    value = Read(key).to<std::tuple<double, double>>();
  }
  void Visit(const char* key, std::tuple<double, double, double>& value) override {
    value = Read(key).to<std::tuple<double, double, double>>();
  }
  void Visit(const char* key, std::tuple<std::optional<double>, double>& value) override {
    value = Read(key).to<std::tuple<std::optional<double>, double>>();
  }
  void Visit(const char* key, std::optional<std::string>& value) override {
    value = Read(key).toOptional<std::string>();
  }

 private:
  c10::IValue Read(const char* key) {
    c10::IValue found;
    archive_.read(key, found);
    return found;
  }

  torch::serialize::InputArchive& archive_;
};

}  // namespace

double Options::get_lr() const { return const_cast<Options*>(this)->rate(); }
void Options::set_lr(double lr) { rate().Set(lr); }

void Options::CheckModes() const {
  TORCH_CHECK(!use_foreach().value_or(false) || !use_fused().value_or(false),
              "`fused` and `foreach` cannot be `True` together.");
}

void Options::CheckAdamFamily(double lr, const std::tuple<double, double>& betas, double eps, double weight_decay) {
  const auto [beta1, beta2] = betas;
  TORCH_CHECK_VALUE(lr >= 0, "Invalid learning rate: ", lr);
  TORCH_CHECK_VALUE(eps >= 0, "Invalid epsilon value: ", eps);
  TORCH_CHECK_VALUE(beta1 >= 0 && beta1 < 1, "Invalid beta parameter at index 0: ", beta1);
  TORCH_CHECK_VALUE(beta2 >= 0 && beta2 < 1, "Invalid beta parameter at index 1: ", beta2);
  TORCH_CHECK_VALUE(weight_decay >= 0, "Invalid weight_decay value: ", weight_decay);
}

void Options::serialize(torch::serialize::InputArchive& archive) {
  Reader reader(archive);
  Visit(reader);
}

void Options::serialize(torch::serialize::OutputArchive& archive) const {
  Writer writer(archive);
  const_cast<Options*>(this)->Visit(writer);
}

std::unique_ptr<torch::optim::OptimizerParamState> State::clone() const { return std::make_unique<State>(*this); }

void State::serialize(torch::serialize::InputArchive& archive) {
  c10::IValue size;
  archive.read("size", size);
  tensors.assign(size.toInt(), at::Tensor());
  for (size_t i = 0; i < tensors.size(); ++i) archive.try_read(std::to_string(i), tensors[i], /*is_buffer=*/true);
}

void State::serialize(torch::serialize::OutputArchive& archive) const {
  archive.write("size", c10::IValue(static_cast<int64_t>(tensors.size())));
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].defined()) archive.write(std::to_string(i), tensors[i], /*is_buffer=*/true);
  }
}

}  // namespace lockstep::optim
